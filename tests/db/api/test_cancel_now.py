"""Ending a job at once despite a long grace period, by any user who may cancel it, over the API and on the page."""

import pytest

from accounts.models import AuditEntry, Token
from common.errors import NotAllowed
from jobs import services
from jobs.models import JobEvent
from tests.db.api.test_api import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def stopping(lab, people):
    """A job whose replicas take an hour to stop, after four cancels without `now`."""
    lab.cluster.stop_seconds = 3600
    job = lab.running(grace_seconds=3600)
    for _ in range(4):
        services.cancel(job=job, by=people.owner)
        job = lab.visit(job)
    assert job.phase == "stopping" and lab.cluster.alive(job.run)
    return job


def test_a_stopping_job_ends_at_once(lab, people, stopping):
    services.cancel(job=stopping, by=people.owner, is_now=True)
    assert lab.visit(stopping, times=2).phase == "cancelled"
    assert lab.cluster.alive(stopping.run) == []


def test_a_running_job_ends_at_once(lab, people):
    lab.cluster.stop_seconds = 3600
    job = lab.running(grace_seconds=3600)
    services.cancel(job=job, by=people.admin, is_now=True)
    assert lab.visit(job, times=3).phase == "cancelled"


def test_a_job_that_failed_ends_at_once_and_stays_failed(lab, people):
    """One rank failed; the other replica still has an hour to stop."""
    lab.cluster.stop_seconds = 3600
    job = lab.running(grace_seconds=3600, max_retries=0)
    lab.cluster.finish(job.run, 1, "worker", index=0, exit_code=1)
    job = lab.visit(job, times=3)
    assert job.phase == "stopping"
    services.cancel(job=job, by=people.owner, is_now=True)
    assert lab.visit(job, times=2).phase == "failed"


def test_it_is_noted_and_audited_once(lab, people, stopping):
    first = stopping.cancel_requested_at
    for _ in range(3):
        job = services.cancel(job=stopping, by=people.teammate, is_now=True)
    assert job.cancel_requested_at == first and job.cancel_now_at is not None
    said = list(JobEvent.objects.filter(job=job, kind="cancel").values_list("message", "user__username"))
    assert said == [("cancel requested", "owner"), ("cancel requested, at once", "teammate")]
    entry = AuditEntry.objects.filter(act="job.cancel").latest("pk")
    assert (entry.actor, set(entry.after)) == (people.teammate, {"cancel_now_at"})


@pytest.mark.parametrize("who", ["viewer", "stranger"])
def test_only_users_who_may_cancel_may_end_a_job_at_once(people, stopping, who):
    with pytest.raises(NotAllowed):
        services.cancel(job=stopping, by=getattr(people, who), is_now=True)


def test_a_finished_job_is_unchanged(lab, people):
    job = lab.finish(lab.running(), 0, 0)
    services.cancel(job=job, by=people.owner, is_now=True)
    job.refresh_from_db()
    assert (job.phase, job.cancel_now_at) == ("succeeded", None)


@pytest.fixture
def api(client, people) -> Api:
    return Api(client, Token.issue(people.owner, "test")[1])


def test_the_api_accepts_now_for_one_job_and_in_bulk(api, lab, stopping):
    answer = api.post(f"/jobs/{stopping.pk}/cancel", {"now": True})
    assert answer.status_code == 200 and answer.json()["cancel_now_at"]
    job = lab.running(grace_seconds=3600)
    assert api.post("/jobs/bulk", {"act": "cancel", "ids": [job.pk], "now": True}).json()["results"][0]["status"] == 200
    assert [lab.visit(one, times=3).phase for one in (stopping, job)] == ["cancelled", "cancelled"]


def test_the_api_refuses_an_invalid_now(api, stopping):
    assert api.post(f"/jobs/{stopping.pk}/cancel", {"now": "perhaps"}).status_code == 422
    refused = api.post("/jobs/bulk", {"act": "suspend", "ids": [stopping.pk], "now": True})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "now"


def test_a_cancel_without_now_keeps_the_grace_period(api, stopping):
    assert api.post(f"/jobs/{stopping.pk}/cancel", {}).json()["cancel_now_at"] is None


def test_the_page_offers_it_once_a_cancel_was_requested(as_, people, lab):
    lab.cluster.stop_seconds = 3600
    job, owner = lab.running(grace_seconds=3600), as_(people.owner)
    assert "confirm-end-now" not in owner.get(f"/jobs/{job.pk}").text
    owner.post(f"/jobs/{job.pk}/cancel")
    lab.visit(job)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "confirm-end-now" in page and "3600 s" in page
    assert "confirm-end-now" not in as_(people.viewer).get(f"/jobs/{job.pk}").text
    owner.post(f"/jobs/{job.pk}/cancel", {"now": "1"})
    page = owner.get(f"/jobs/{job.pk}").text
    assert "confirm-end-now" not in page and "at once" in page
    assert lab.visit(job, times=2).phase == "cancelled"
