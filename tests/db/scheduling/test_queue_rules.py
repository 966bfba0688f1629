"""Limits of queues: at submission, at admission, by month; and queues that are emptied."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from common.errors import InvalidInput, InvalidSpec
from jobs import services as jobs
from jobs.core.lifecycle import Phase
from jobs.models import Attempt, Checkpoint, Job, JobEvent, RemovedJob
from jobs.scheduling import hours, reach, waiting
from jobs.scheduling.scheduler import schedule
from jobs.scheduling.usage import consequences, with_use
from queues import services
from queues.models import Queue
from queues.trees import sharing
from tests.support.builders import Lab


def limit(lab: Lab, **values) -> Queue:
    lab.queue = services.change(queue=lab.queue, by=None, **values)
    return lab.queue


# -- at submission


@pytest.mark.parametrize(
    ("limits", "sent", "field", "words"),
    [
        ({"highest_priority": 10}, {"priority": 11}, "priority", "is above 10, the highest of queue default; lower it"),
        ({"largest_job": 3}, {}, "nodes", "needs 4 CPU slots, but a job may take 3 CPU slots in queue default"),
        ({"slots_per_user": 3}, {}, "nodes", "but the jobs of one user may take 3 CPU slots in queue default"),
        ({"longest_seconds": 60}, {"deadline_seconds": 61}, "deadline_seconds", "is longer than 60 (1 min 00 s)"),
    ],
)
def test_a_job_beyond_a_limit_is_refused_with_the_way_out(lab, limits, sent, field, words):
    limit(lab, **limits)
    with pytest.raises(InvalidSpec) as caught:
        lab.submit(**sent)
    (problem,) = caught.value.problems
    assert problem.field == field and words in problem.message
    assert "ask an administrator of the team to raise the limit" in problem.message
    limit(lab, **dict.fromkeys(limits))
    assert lab.submit(**sent).phase == Phase.QUEUED


def test_jobs_without_a_deadline_get_the_longest_of_the_queue(lab):
    before = lab.submit()
    limit(lab, longest_seconds=3600)
    assert lab.submit().job_spec.deadline_seconds == 3600
    assert lab.submit(deadline_seconds=60).job_spec.deadline_seconds == 60
    before.refresh_from_db()
    assert before.job_spec.deadline_seconds is None, "submitted jobs keep what they have"


def test_the_default_of_a_queue_is_its_jobs_priority_within_its_limit(lab):
    services.change(queue=lab.queue, by=None, defaults={"priority": 5}, highest_priority=7)
    lab.queue.refresh_from_db()
    assert (lab.submit().priority, lab.submit(priority=7).priority) == (5, 7)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"highest_priority": 1001}, "highest_priority"), ({"largest_job": 0}, "largest_job"),
        ({"longest_seconds": 0.5}, "longest_seconds"), ({"slots_per_user": True}, "slots_per_user"),
        ({"budget_hours": -1}, "budget_hours"), ({"budget_hours": float("nan")}, "budget_hours"),
        ({"largest_job": "0.5 GPU"}, "largest_job"), ({"drains": True}, "drains"), ({"drains": 1}, "drains"),
    ],
)  # fmt: skip
def test_values_that_are_no_limits_are_refused_by_name(lab, values, field):
    with pytest.raises(InvalidInput) as caught:
        limit(lab, **values)
    assert [one.field for one in caught.value.problems] == [field]


# -- at admission


def test_one_user_holds_no_more_than_the_limit_and_holds_up_nobody(lab, people):
    limit(lab, slots_per_user=4)
    running = lab.running()
    mine, theirs = (
        lab.submit(),
        jobs.submit(user=people.teammate, queue=lab.queue, sent={"command": "torchrun a.py"})[0],
    )
    assert schedule() == 1
    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert (mine.wait_code, theirs.phase) == ("user_limit", Phase.ADMITTED)
    seen = waiting.of_job(mine)
    assert seen is not None and seen.position is None and seen.starts is None
    assert "of which 0 CPU slots are left; starts when own jobs have ended" in seen.sentence
    lab.finish(running, 0, 0)
    assert schedule() == 1


def test_jobs_of_a_user_at_the_limit_do_not_hide_those_of_others(lab, people, monkeypatch):
    monkeypatch.setattr(reach, "HORIZON", 3)
    limit(lab, slots_per_user=4)
    lab.running()
    many = [lab.submit() for _ in range(6)]
    theirs = jobs.submit(user=people.teammate, queue=lab.queue, sent={"command": "torchrun a.py"})[0]
    found = reach.waiting(sharing(lab.queue))
    assert [job.pk for job in found] == [*(one.pk for one in many[:3]), theirs.pk]
    assert schedule() == 1


def test_when_the_hours_of_a_month_are_spent_nothing_starts_until_the_next(lab, monkeypatch):
    job = lab.running()  # 4 slots
    month = hours.month_of(timezone.now())
    Attempt.objects.filter(job=job).update(launched_at=month, running_at=month)
    spent = 4 * (timezone.now() - month).total_seconds() / 3600
    limit(lab, budget_hours=int(spent) + 100)
    waits = lab.submit(nodes=1)
    assert hours.spent_until(lab.queue, timezone.now()) is None
    limit(lab, budget_hours=int(spent))
    assert schedule() == 0
    waits.refresh_from_db()
    assert waits.wait_code == "budget_spent"
    seen = waiting.of_job(waits)
    assert seen is not None and seen.reason is not None
    assert seen.reason.at == hours.after(month).timestamp() and "queue default has used its hours" in seen.sentence
    job.refresh_from_db()
    assert job.phase == Phase.RUNNING, "what runs goes on"
    limit(lab, budget_hours=None)
    assert schedule() == 1


# -- a queue that is emptied


def test_a_queue_that_drains_stops_its_jobs_which_go_on_when_it_is_opened(lab):
    job, waits = lab.running(max_retries=1), lab.submit(nodes=4)
    assert consequences(with_use(Queue.objects.all()).get(), slots=8, is_open=False, drains=True)[-1].startswith(
        "Running jobs, which hold 4 CPU slots, are asked to stop"
    )
    limit(lab, is_open=False, drains=True)
    assert schedule() == 0
    assert schedule() == 0, "asked once"
    note = JobEvent.objects.get(job=job, kind="note", message__startswith="asked to give its quota back")
    assert note.message.endswith("an administrator drains queue default")
    lab.visit(job, times=4)
    assert (job.phase, job.failures, job.preempt_requested_at) == (Phase.QUEUED, 0, None)
    schedule()
    job.refresh_from_db()
    assert job.wait_code == "on_hold"
    assert limit(lab, is_open=True).drains is False
    assert schedule() == 1, "the first one has kept its place"
    lab.visit(job, times=3)
    assert (job.phase, job.attempt) == (Phase.RUNNING, 2)
    waits.refresh_from_db()
    assert waits.phase == Phase.QUEUED


def test_the_page_of_a_queue_sets_limits_and_says_what_draining_does(as_, people, lab):
    lab.running()
    admin = as_(people.admin)
    page = admin.get("/queues/default")
    assert "While it is closed, running jobs stop, too" in page.text
    sent = {
        "slots": 8,
        "gpus_per_node": 0,
        "description": "",
        "policy": "strict",
        "slots_per_user": "4",
        "drains": "on",
    }
    shown = admin.post("/queues/default", sent)
    assert "are asked to stop" in shown.text and Queue.objects.get().is_open
    admin.post("/queues/default", {**sent, "seen": "8 False drains"})
    queue = Queue.objects.get()
    assert (queue.is_open, queue.drains, queue.slots_per_user, queue.largest_job) == (False, True, 4, None)
    admin.post("/queues/default", {**sent, "is_open": "on", "slots_per_user": "", "seen": "8 True drains"})
    queue.refresh_from_db()
    assert (queue.is_open, queue.drains, queue.slots_per_user) == (True, False, None)


# -- hours


def attempt(lab: Lab, number: int, job: Job, began: datetime, ended: datetime | None, **values) -> None:
    outcome = "" if ended is None else "queued"
    defaults = {"cluster": "local", "launched_at": began, "running_at": began, "ended_at": ended, "outcome": outcome}
    Attempt.objects.update_or_create(job=job, number=number, defaults={**defaults, **values})


def test_hours_are_summed_by_day_and_user_and_say_what_was_lost(lab, people):
    day = datetime(2026, 3, 30, tzinfo=UTC)
    now = day + timedelta(days=3)
    hour = timedelta(hours=1)
    job = lab.submit()  # 4 slots
    # over midnight: 2 h of the first day, 1 h of the second; it ran after half an hour
    attempt(
        lab,
        1,
        job,
        day + 22 * hour,
        day + 25 * hour,
        running_at=day + 22.5 * hour,
        reason="preempted",
        idle_seconds=3 * 3600,
    )
    # failed after 3 h, the last checkpoint after 2 h
    attempt(lab, 2, job, day + 30 * hour, day + 33 * hour, reason="retry")
    Checkpoint.objects.create(job=job, name="a", written_at=day + 32 * hour, seen_at=now, attempt=2)
    # still running
    attempt(lab, 3, job, day + 71 * hour, None)
    Job.objects.filter(pk=job.pk).update(attempt=3)
    RemovedJob.objects.create(
        id=10**6, uid="x", team=lab.queue.team, queue=lab.queue, user=people.teammate, name="gone", framework="torchrun",
        phase="succeeded", slots=2, attempt=1, held_seconds=3600, created_at=day, finished_at=day + 0.5 * hour,
    )  # fmt: skip
    span = {"since": day, "until": now, "now": now}
    found = hours.used([lab.queue.pk], by="user", step=timedelta(days=1), **span)
    mine, theirs = (lab.queue.team_id, lab.user.pk), (lab.queue.team_id, people.teammate.pk)
    assert [(one.begins, (one.team, one.user), one.hours, one.lost, one.starting) for one in found] == [
        (day, mine, 8, 0, 2), (day, theirs, 1, 0, 0), (day + 24 * hour, mine, 4 + 12, 4, 0), (day + 48 * hour, mine, 4, 0, 0),
    ]  # fmt: skip
    (whole,) = hours.used([lab.queue.pk], by="queue", **span)
    assert (whole.hours, whole.lost, whole.starting, whole.idle) == (29, 4, 2, 3)
    assert [one.idle for one in found] == [2, 0, 1, 0], "spread evenly over the attempt"
    (one, gone) = sorted(hours.used([lab.queue.pk], by="job", **span), key=lambda one: -one.hours)
    assert (one.name, one.hours, gone.name, gone.hours) == (job.name, 28, "gone", 1)
    assert hours.used([lab.queue.pk], by="team", since=now, until=now, now=now) == []
    assert hours.used([], by="team", **span) == []


def test_a_month_begins_and_ends_in_utc():
    at = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    assert hours.month_of(at) == datetime(2026, 1, 1, tzinfo=UTC)
    assert hours.after(hours.month_of(datetime(2026, 12, 31, 23, 59, tzinfo=UTC))) == datetime(2027, 1, 1, tzinfo=UTC)
