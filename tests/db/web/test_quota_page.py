"""/teams/NAME/quota: seen by members, changed by platform administrators with its consequence first, and undone."""

import re

import pytest

from accounts.models import AuditEntry, Team
from jobs.scheduling.scheduler import schedule
from queues import cohorts, services
from queues.models import TeamQuota
from tests.support.builders import Lab

PAGE = "/teams/nlp/quota"


@pytest.fixture
def other(lab, people) -> Lab:
    """A queue of another team in the same cohort: each has 8 CPU slots."""
    beside = Team.objects.create(name="beside")
    cohorts.make_flavor(by=None, name="slots", cluster=lab.queue.cluster, resource="cpu")
    cohorts.set_cohort(by=None, name="all")
    for team in (lab.queue.team, beside):
        cohorts.set_quota(by=None, team=team, flavor="slots", nominal=8, cohort="all")
    services.change(queue=lab.queue, by=None, slots=4, flavor="slots", borrowing_limit=None)
    queue = services.make(
        by=None, name="beside", team="beside", cluster=lab.queue.cluster, slots=8, flavor="slots", borrowing_limit=None
    )
    lab.queue.refresh_from_db()
    made = Lab(queue, people.admin)
    made.cluster, made.clock = lab.cluster, lab.clock
    return made


def form(**values) -> dict:
    quota = TeamQuota.objects.get(team__name="nlp")
    usual = {
        "flavor": "slots",
        "nominal": 8,
        "borrowing_limit": "",
        "lending_limit": "",
        "weight": "1",
        "cohort": "all",
    }
    return {**usual, "reason": "", "version": quota.version, **values}


def test_members_see_what_their_team_has_and_cannot_change_it(as_, people, lab, other):
    lab.running(nodes=5, nproc_per_node=2)
    page = as_(people.viewer).get(PAGE).text
    assert 'aria-label="10 used of 8, 2 borrowed, 0 lent"' in page and "has 4 and may borrow" in page
    assert "Change it" not in page and "Administrators of the platform set these numbers" in page
    assert as_(people.viewer).post(PAGE, form()).status_code == 403
    assert as_(people.stranger).get(PAGE).status_code == 404


def test_what_a_change_does_is_shown_first_in_the_schedulers_own_decisions(as_, people, lab, other):
    admin = as_(people.admin)
    running = lab.running(nodes=5, nproc_per_node=2)  # 2 of them borrowed
    large, theirs = lab.submit(nodes=6, nproc_per_node=2), other.submit(nodes=4, nproc_per_node=2)
    schedule()
    less = form(nominal=4, borrowing_limit=6)
    shown = admin.get(PAGE, less, headers={"HX-Request": "true", "HX-Target": "div#consequence-slots"}).text
    assert "hold 10 CPU slots, 6 beyond that: others may take these back" in shown
    assert f"never to start with it: {large.name} (<a" in shown
    assert TeamQuota.objects.get(team__name="nlp").nominal == 8
    first = admin.post(PAGE, less)
    assert first.status_code == 200 and "Save anyway" in first.text
    seen = re.search(r'name="seen" value="([^"]+)"', first.text)[1]
    assert admin.post(PAGE, {**less, "seen": seen, "reason": "rack 7"}).status_code == 302
    quota = TeamQuota.objects.get(team__name="nlp")
    assert (quota.nominal, quota.borrowing_limit) == (4, 6)
    assert AuditEntry.objects.latest("id").after["reason"] == "rack 7"
    running.refresh_from_db()
    assert running.phase == "running" and theirs.pk


def test_more_quota_says_what_starts_at_once_and_a_typing_error_is_asked_about(as_, people, lab, other):
    services.change(queue=other.queue, by=None, slots=8)
    other.running(nodes=4, nproc_per_node=2)
    lab.running(nodes=4, nproc_per_node=2)
    waits = lab.submit(nodes=2, nproc_per_node=2)
    schedule()
    shown = as_(people.admin).post(PAGE, form(nominal=80)).text
    assert "80 is more than twice today" in shown
    assert f"There is room at once for {waits.name} (" in shown


def test_a_change_is_undone_and_somebody_elses_is_not_lost(as_, people, lab, other):
    admin = as_(people.admin)
    saved = admin.post(PAGE, form(weight="2", seen="8 None None 2.0 all"))
    assert saved.status_code == 302 and saved["Location"].endswith("?undo=slots")
    page = admin.get(saved["Location"]).text
    assert "Before, slots was: has 8, may borrow without limit" in page
    sent = dict(
        re.findall(
            r'<input type="hidden" name="(\w+)" value="([^"]*)">',
            page.partition("Before, slots was")[2].partition("</form>")[0],
        )
    )
    assert admin.post(PAGE, sent).status_code == 302
    quota = TeamQuota.objects.get(team__name="nlp")
    assert (quota.weight, quota.version) == (1.0, 3)
    late = admin.post(PAGE, form(version=1, lending_limit=2))
    assert late.status_code == 409 and "was changed since version 1" in late.text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nominal": "-1"}, "must be a whole number from 0"), ({"nominal": "8 Gi"}, "Enter a whole number"),
        ({"weight": "0"}, "must be a number above 0"), ({"weight": "nan"}, "number"), ({"nominal": "3"}, "is less than the 4 that queues"),
        ({"cohort": "nowhere"}, "is no cohort"), ({"flavor": "nothing"}, "is no flavor"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_its_field(as_, people, lab, other, values, words):
    answer = as_(people.admin).post(PAGE, form(**{"seen": "x", **values}))
    assert answer.status_code == 422 and words.lower() in answer.text.lower(), answer.text
    assert TeamQuota.objects.get(team__name="nlp").version == 1


def test_a_flavor_is_given_there(as_, people, lab, other):
    cohorts.make_flavor(by=None, name="gpus", cluster=lab.queue.cluster, resource="gpu", gpus_per_node=8)
    admin = as_(people.admin)
    assert "Give it another flavor" in admin.get(PAGE).text
    sent = {"flavor": "gpus", "nominal": "16", "weight": "1", "cohort": ""}
    assert admin.post(PAGE, sent).status_code == 302
    assert TeamQuota.objects.get(flavor__name="gpus").nominal == 16
    assert "gpus" in admin.get(PAGE).text
