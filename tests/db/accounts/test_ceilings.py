"""Ceilings: a team's administrators share out what platform administrators allow the team, and see what a change does."""

import re

import pytest
from django.core.management import call_command
from django.test import Client

from accounts.models import AuditEntry, User
from common.errors import InvalidInput
from queues import services
from queues.models import Ceiling, Queue
from tests.support import seed

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(people, boss):
    def of(name: str) -> Client:
        client = Client()
        client.force_login(User.objects.get(username={"admin": "root"}.get(name, name)))
        return client

    return of


def test_an_administrator_cannot_raise_the_quota_beyond_todays(api, queue):
    refused = api("boss").patch("/queues/default", {"slots": 999_999})
    assert refused.status_code == 422
    (problem,) = refused.json()["errors"]
    assert problem["field"] == "slots" and "beyond the ceiling of team nlp: 8 CPU slots" in problem["message"]
    assert Queue.objects.get().nominal == 8 and Ceiling.objects.count() == 0  # nothing half-made


def test_queues_of_a_team_share_its_ceiling(api, queue, team):
    api("admin").post("/queues", {"name": "second", "team": "nlp", "cluster": "local", "slots": 4})
    assert api("boss").get("/teams/nlp/ceilings").json()["results"] == [{"resource": "cpu", "slots": 12, "quota": 12}]
    assert api("boss").patch("/queues/second", {"slots": 5}).status_code == 422
    assert api("boss").patch("/queues/default", {"slots": 6}).status_code == 200
    assert api("boss").patch("/queues/second", {"slots": 6}).status_code == 200
    assert "6 of them in others, so at most 6 here" in api("boss").patch("/queues/second", {"slots": 7}).text


def test_a_platform_administrator_sets_it_with_a_reason(api, queue, team):
    assert api("boss").put("/teams/nlp/ceilings/cpu", {"slots": 100}).status_code == 403
    answer = api("admin").put("/teams/nlp/ceilings/cpu", {"slots": 10, "reason": "new nodes"})
    assert answer.json() == {"resource": "cpu", "slots": 10, "quota": 8}
    entry = AuditEntry.objects.get(act="ceiling.change")
    assert (entry.before, entry.after, entry.team_name) == ({"cpu": 8}, {"cpu": 10, "reason": "new nodes"}, "nlp")
    assert api("boss").patch("/queues/default", {"slots": 10, "reason": "deadline"}).status_code == 200
    assert AuditEntry.objects.get(act="queue.change").after == {"slots": 10, "reason": "deadline"}
    assert api("admin").put("/teams/nlp/ceilings/cpu", {"slots": None}).json()["slots"] is None
    assert api("boss").patch("/queues/default", {"slots": 999_999}).status_code == 200


@pytest.mark.parametrize(
    ("resource", "body", "field"),
    [
        ("tpu", {"slots": 1}, "resource"), ("cpu", {"slots": -1}, "slots"), ("cpu", {"slots": "many"}, "slots"),
        ("cpu", {}, "slots"), ("cpu", {"slots": 1, "reason": "x" * 201}, "reason"), ("cpu", {"slots": 1, "colour": 1}, "colour"),
    ],
)  # fmt: skip
def test_an_invalid_ceiling_names_the_field(api, queue, resource, body, field):
    answer = api("admin").put(f"/teams/nlp/ceilings/{resource}", body)
    assert answer.status_code == 422 and f'"{field}"' in answer.text
    assert Ceiling.objects.count() == 0


def test_who_may_go_beyond_it_raises_it(api, queue, team, people):
    services.set_ceiling(team=team, resource="cpu", slots=9, by=None)
    assert api("admin").patch("/queues/default", {"slots": 20}).status_code == 200
    assert services.ceilings_of(team) == {"cpu": 20}
    call_command("queue", "default", "--team", "nlp", "--slots", "30")
    assert services.ceilings_of(team) == {"cpu": 30}
    assert AuditEntry.objects.filter(act="ceiling.change").count() == 3


def test_a_ceiling_below_the_quota_takes_nothing_away(queue, team, boss):
    services.set_ceiling(team=team, resource="cpu", slots=2, by=None)
    services.change(queue=queue, by=boss, slots=7)
    with pytest.raises(InvalidInput, match="beyond the ceiling"):
        services.change(queue=queue, by=boss, slots=8)


def test_another_teams_ceiling_is_not_shown(api, queue):
    assert api("stranger").get("/teams/nlp/ceilings").status_code == 404


# -- what a change does, before it is saved


FORM = {"slots": "8", "gpus_per_node": "0", "description": "", "is_open": "on"}


def test_what_a_lower_quota_does_is_shown_before_it_is_saved(browser, lab, queue):
    seed.running(lab, nodes=2, per_node=3, steps=2, name="holds-six")
    big = lab.submit(name="big", nodes=1, nproc_per_node=8)
    asked = browser("boss").post("/queues/default", {**FORM, "slots": "4"})
    assert asked.status_code == 200 and Queue.objects.get().nominal == 8
    assert "Jobs hold 6 of it now, 2 more than the new quota: none is stopped" in asked.text
    assert f'big (<a href="/jobs/{big.pk}">job {big.pk}</a>, 8)' in asked.text
    seen = re.search(r'name="seen" value="([^"]+)"', asked.text)[1]
    assert browser("boss").post("/queues/default", {**FORM, "slots": "4", "seen": seen}).status_code == 302
    assert Queue.objects.get().nominal == 4


def test_the_consequence_of_other_values_is_asked_for_again(browser, lab, queue):
    lab.submit(name="waits", nodes=1, nproc_per_node=2)
    closing = {name: value for name, value in FORM.items() if name != "is_open"}
    asked = browser("boss").post("/queues/default", {**closing, "seen": "9 True"})
    assert "1 waiting job will wait until the queue is opened again" in asked.text
    assert Queue.objects.get().is_open


def test_typing_shows_the_consequence(browser, lab, queue, team):
    waiting = lab.submit(name="waits", nodes=2, nproc_per_node=4)
    told = {"HX-Request": "true", "HX-Target": "div#consequence"}
    part = browser("boss").get("/queues/default", {**FORM, "slots": "20"}, headers=told).text
    assert "20 is more than twice today" in part and "waits (<a" in part and f"job {waiting.pk}" in part
    assert browser("boss").get("/queues/default", {**FORM, "slots": "x"}, headers=told).text.strip() == ""


def test_a_change_without_consequence_is_saved_at_once(browser, queue):
    answer = browser("boss").post("/queues/default", {**FORM, "description": "for all", "reason": "said so"})
    assert answer.status_code == 302
    assert AuditEntry.objects.get().after == {"description": "for all", "reason": "said so"}


def test_the_ceiling_is_set_on_the_queues_page(browser, queue, team):
    assert "id_ceiling" not in browser("boss").get("/queues/default").text
    assert "The ceiling of team nlp is 8 in all its queues" in browser("boss").get("/queues/default").text
    assert browser("boss").post("/queues/default", {"act": "ceiling", "ceiling": "99"}).status_code == 403
    page = (
        browser("admin").post("/queues/default", {"act": "ceiling", "ceiling": "12", "reason": "r"}, follow=True).text
    )
    assert "together have a ceiling of 12 CPU slots" in page
    assert (
        "must be a whole number"
        in browser("admin").post("/queues/default", {"act": "ceiling", "ceiling": "x"}, follow=True).text
    )
    assert (
        "have no ceiling"
        in browser("admin").post("/queues/default", {"act": "ceiling", "ceiling": ""}, follow=True).text
    )
    assert services.ceilings_of(team) == {"cpu": None}
