"""Another priority for a job that has not ended: what it does, before and after it is set, who may, and what is kept of it."""

import pytest

from accounts.models import AuditEntry, Token
from common.errors import Conflict, InvalidInput, NotAllowed
from jobs import services as jobs
from jobs.core.lifecycle import Phase
from jobs.models import Job, JobEvent
from jobs.scheduling import what_if
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from tests.db.api.test_api import Api


def queue_has(lab, **values) -> None:
    Queue.objects.filter(pk=lab.queue.pk).update(**values)
    lab.queue.refresh_from_db()


def waiting(lab, *names: str, **sent) -> list[Job]:
    """A queue that is full, and jobs that wait in it."""
    lab.running(nodes=2, nproc_per_node=4, name="holder", **sent)
    found = [lab.submit(nodes=1, nproc_per_node=4, name=name) for name in names]
    schedule()
    return found


def test_a_raised_job_starts_before_older_ones_and_keeps_its_age(lab, people):
    older, newer = waiting(lab, "older", "newer")
    effect = what_if.of_priority(newer, 1)
    assert effect.sentences == ["It is number 1 in queue default then, and 2 now."]
    assert effect.waits.reason.code == "waiting_for_quota"
    row = jobs.set_priority(job=newer, by=people.teammate, priority=1)
    assert (row.priority, row.created_at, row.next_reconcile_at) == (1, newer.created_at, None)
    said = JobEvent.objects.get(job=newer, kind="priority")
    assert (said.message, said.user) == ("changed to 1", people.teammate)
    kept = AuditEntry.objects.get(act="job.priority")
    assert (kept.before, kept.after, kept.actor) == ({"priority": 0}, {"priority": 1}, people.teammate)
    lab.finish(Job.objects.get(name="holder"), 0, 0)
    queue_has(lab, nominal=4)
    schedule()
    assert [Job.objects.get(pk=one.pk).phase for one in (older, newer)] == [Phase.QUEUED, Phase.ADMITTED]


def test_the_same_priority_again_writes_nothing(lab, people):
    [job] = waiting(lab, "once")
    jobs.set_priority(job=job, by=people.teammate, priority=0)
    assert (
        not JobEvent.objects.filter(kind="priority").exists()
        and not AuditEntry.objects.filter(act="job.priority").exists()
    )


def test_what_starts_at_once_and_what_would_wait_for_it_is_said(lab):
    older, newer = (
        lab.submit(nodes=1, nproc_per_node=8, name="older"),
        lab.submit(nodes=1, nproc_per_node=8, name="newer"),
    )
    assert what_if.of_priority(newer, 7).sentences == [
        "It is number 1 in queue default then, and 2 now.",
        f"There is room at once for newer (job {newer.pk}, 8).",
        f"Would start now, and would wait: older (job {older.pk}, 8).",
    ]
    assert what_if.of_priority(newer, 7).waits is None
    assert what_if.of_priority(newer, 0).sentences == ["Nothing changes at once."]


def test_jobs_that_it_preempts_are_named_and_a_running_one_can_be_saved_from_that(lab):
    queue_has(lab, preempts=True)
    [job] = waiting(lab, "urgent")
    holder = Job.objects.get(name="holder")
    assert what_if.of_priority(job, 5).sentences == [
        f"At once preempted for jobs that have a right to it: holder (job {holder.pk}, 8)."
    ]
    assert what_if.of_priority(job, 5).waits.reason.code == "preempting"
    assert what_if.of_priority(holder, -1).sentences == what_if.of_priority(job, 5).sentences
    jobs.set_priority(job=holder, by=holder.user, priority=5)
    jobs.set_priority(job=job, by=job.user, priority=5)
    schedule()
    assert Job.objects.get(pk=holder.pk).preempt_requested_at is None


def test_what_is_proposed_makes_it_the_first(lab):
    older, newer = waiting(lab, "older", "newer")
    assert (what_if.priority_to_be_first(older), what_if.priority_to_be_first(newer)) == (0, 1)
    assert what_if.priority_to_be_first(Job.objects.get(name="holder")) == 0, "it does not wait"
    Job.objects.filter(pk=newer.pk).update(priority=4)
    assert what_if.priority_to_be_first(older) == 4, "it is the older one"
    queue_has(lab, highest_priority=0)
    assert what_if.priority_to_be_first(Job.objects.get(pk=older.pk)) == 0, "no more than the queue takes"


def test_a_job_far_behind_the_horizon_gets_a_place_in_front(lab, monkeypatch):
    monkeypatch.setattr("jobs.scheduling.reach.HORIZON", 1)
    *_, last = waiting(lab, "one", "two", "three")
    assert what_if.of_priority(last, 1).sentences == ["It is number 1 in queue default then, and 3 now."]


@pytest.mark.parametrize(
    ("value", "words"),
    [(1001, "from -1000 to 1000"), (5, "is above 3, the highest of queue default"), (True, "whole number")],
)
def test_a_value_that_no_job_may_have_is_refused_with_the_way_out(value, words, lab, people):
    queue_has(lab, highest_priority=3)
    [job] = waiting(lab, "one")
    with pytest.raises(InvalidInput, match=words):
        jobs.set_priority(job=job, by=people.admin, priority=value)
    assert not AuditEntry.objects.filter(act="job.priority").exists()


def test_viewers_and_ended_jobs_are_refused(lab, people):
    job = lab.finish(lab.running(nodes=1, nproc_per_node=1), 0)
    with pytest.raises(NotAllowed, match="may not control"):
        jobs.set_priority(job=job, by=people.viewer, priority=1)
    with pytest.raises(Conflict, match="cannot be given another priority"):
        jobs.set_priority(job=job, by=people.teammate, priority=1)


def test_the_page_proposes_shows_the_effect_and_sets_it(as_, people, lab):
    _, newer = waiting(lab, "older", "newer")
    member, viewer = as_(people.teammate), as_(people.viewer)
    assert f"/jobs/{newer.pk}/priority?back=queue" in member.get("/queues/default").text
    assert "/priority" not in viewer.get("/queues/default").text
    assert f'href="/jobs/{newer.pk}/priority"' in member.get(f"/jobs/{newer.pk}").text
    page = member.get(f"/jobs/{newer.pk}/priority?back=queue").text
    assert 'value="1"' in page and "It is number 1 in queue default then, and 2 now." in page
    other = member.get(
        f"/jobs/{newer.pk}/priority?priority=-2", headers={"HX-Request": "true", "HX-Target": "effect"}
    ).text
    assert "Nothing changes at once." in other and "<form" not in other
    refused = member.post(f"/jobs/{newer.pk}/priority", {"priority": "5000", "back": "queue"})
    assert refused.status_code == 422 and "from -1000 to 1000" in refused.text
    done = member.post(f"/jobs/{newer.pk}/priority", {"priority": "1", "back": "queue"})
    assert (done.status_code, done["Location"]) == (302, "/queues/default")
    assert Job.objects.get(pk=newer.pk).priority == 1
    assert "changed to 1" in member.get(f"/jobs/{newer.pk}").text


def test_the_api_says_the_effect_to_readers_and_sets_it_for_members(lab, people, client):
    _, newer = waiting(lab, "older", "newer")
    viewer, member = (Api(client, Token.issue(who, "test")[1]) for who in (people.viewer, people.teammate))
    place = f"/jobs/{newer.pk}/priority"
    found = viewer.get(f"{place}?to=1").json()
    assert (
        found["effects"] == ["It is number 1 in queue default then, and 2 now."] and found["waiting"]["position"] == 1
    )
    assert member.get(place).json() == found, "without a number: the least that makes it the first"
    [wrong] = member.get(f"{place}?to=1001").json()["errors"]
    assert (wrong["field"], wrong["message"]) == ("to", "must be a whole number from -1000 to 1000; 0 is usual")
    done = member.post(place, {"priority": 9})
    assert (done.status_code, done.json()["priority"]) == (200, 9)
    assert viewer.post(place, {"priority": 1}).status_code == 403
