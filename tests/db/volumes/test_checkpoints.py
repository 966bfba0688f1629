"""Where the checkpoints of a job are shown, and what is said of a step that is not among them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Token
from jobs import services
from jobs.core.checkpoints import missing_note
from jobs.models import Checkpoint, JobEvent
from tests.db.accounts.conftest import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(lab):
    return lab.running()


def save(job, *steps: int, **values) -> None:
    now = timezone.now()
    for step in steps:
        made = {"name": f"step-{step}", "step": step, "size_bytes": 3 << 20, "written_at": now, "attempt": 1, **values}
        Checkpoint.objects.create(job=job, seen_at=now - timedelta(seconds=30), **made)


def test_the_page_lists_them_by_step_each_with_a_form_that_begins_from_it(client, lab, job):
    client.force_login(lab.user)
    page = client.get(f"/jobs/{job.pk}").text
    assert 'id="checkpoints"' in page and "step-100" not in page
    save(job, 100, 300, 200)
    save(job, 0, name="last.pt")
    Checkpoint.objects.filter(name="last.pt").update(step=None, size_bytes=None)
    part = client.get(f"/jobs/{job.pk}", headers={"HX-Request": "true", "HX-Target": "section#checkpoints"}).text
    places = [part.index(name) for name in ("step-300", "step-200", "step-100", "last.pt")]
    assert places == sorted(places) and "3.0 MiB" in part and "as of" in part and "not known" in part
    assert f"job-{job.pk}-checkpoints from:body" in part
    link = f"/jobs/new?from={job.pk}&checkpoints=1&step=300"
    assert link.replace("&", "&amp;") in part
    form = client.get(link).text
    assert f'name="from_job" value="{job.pk}"' in form and 'name="from_step" value="300"' in form


def test_the_page_of_a_job_with_many_names_the_verb_that_lists_all(client, lab, job, people):
    save(job, *range(1, 12))
    client.force_login(people.viewer)
    page = client.get(f"/jobs/{job.pk}").text
    assert "step-11" in page and ">step-1<" not in page and f"muster checkpoints {job.pk}" in page
    assert "checkpoints=1" not in page  # a viewer starts no job


def test_the_api_lists_them_in_pages(client, lab, job):
    save(job, 1, 2, 3)
    api = Api(client, Token.issue(lab.user, "test", scope="read")[1])
    first = api.get(f"/jobs/{job.pk}/checkpoints", limit=2).json()
    assert "results" in first, first
    assert [one["step"] for one in first["results"]] == [3, 2]
    assert first["results"][0].keys() == {"name", "step", "size_bytes", "written_at", "attempt", "seen_at"}
    rest = client.get(first["next"], headers=api.headers).json()
    assert ([one["step"] for one in rest["results"]], rest["next"]) == ([1], None)


def test_a_step_that_is_not_known_is_a_note_of_the_plan_and_of_the_history(lab, job):
    said = f"job {job.pk} has no checkpoint of step 250 that is known; the nearest: 200 and 300"

    def notes(step: int) -> tuple[str, ...]:
        sent = {"command": "true", "from_job": job.pk, "from_step": step}
        return services.preview(user=lab.user, queue=lab.queue, sent=sent).notes

    assert notes(250) == ()  # nothing is known of this job: its agents may be of the release before
    save(job, 100, 200, 300)
    assert notes(250) == (said,) and notes(300) == ()
    second = lab.submit(from_job=job.pk, from_step=250)
    assert JobEvent.objects.filter(job=second, message=f"submitted; {said}").count() == 1


@pytest.mark.parametrize(("step", "near"), [(1, "10"), (15, "10 and 20"), (99, "30")])
def test_the_nearest_steps_are_named(step, near):
    assert missing_note(step, [30, 10, 20, 20], job=4).endswith(f"the nearest: {near}")
    assert missing_note(20, [30, 10, 20], job=4) == missing_note(20, [], job=4) == ""
