"""Why a job waits, who passes whom, and when it may start, from the rows of its queue."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.core.lifecycle import Phase
from jobs.models import Job
from jobs.scheduling import holding, waiting
from jobs.scheduling.scheduler import schedule
from queues import services
from queues.models import Queue

HOUR = 3600


def ended(lab, seconds: float, *, name: str = "", count: int = 5) -> None:
    """Jobs of the queue that held their quota for so long."""
    now = timezone.now()
    for number in range(count):
        job = lab.submit(nodes=1, nproc_per_node=1, **({"name": f"{name}-{number}"} if name else {}))
        Job.objects.filter(pk=job.pk).update(
            phase=Phase.SUCCEEDED, admitted_at=now - timedelta(seconds=seconds), running_at=now, finished_at=now
        )


def admitted(lab, **sent) -> Job:
    job = lab.submit(**sent)
    schedule()
    job.refresh_from_db()
    assert job.phase == Phase.ADMITTED
    return job


def policy(lab, name: str) -> None:
    Queue.objects.filter(pk=lab.queue.pk).update(policy=name)
    lab.queue.refresh_from_db()


def seconds_until(moment) -> float:
    return (moment - timezone.now()).total_seconds()


def test_a_waiting_job_says_behind_whom_it_is_and_who_holds_the_quota(lab):
    holder = admitted(lab, nodes=2, nproc_per_node=4, name="holds-all")
    first, second = lab.submit(), lab.submit()
    schedule()
    found = waiting.of_queue(lab.queue)
    assert [one.position for one in found.values()] == [1, 2]
    assert found[first.pk].reason.code == "waiting_for_quota"
    assert found[first.pk].sentence == "needs 4 CPU slots; queue default has 0 CPU slots free of 8 CPU slots"
    assert found[second.pk].sentence == f"1 ahead in queue default; job {first.pk} is first"
    assert [(one.job.pk, one.ends) for one in found[first.pk].holders] == [(holder.pk, None)]
    assert found[first.pk].starts is None and found[first.pk].unknown == (holder.pk,)


def test_what_only_moves_up_is_not_written(lab, django_assert_num_queries):
    admitted(lab, nodes=2, nproc_per_node=4)
    jobs = [lab.submit() for _ in range(4)]
    schedule()
    stored = dict(Job.objects.filter(pk__in=[one.pk for one in jobs]).values_list("pk", "wait_reason"))
    codes = list(Job.objects.filter(pk__in=stored).order_by("pk").values_list("wait_code", flat=True))
    assert codes == ["waiting_for_quota", "behind", "behind", "behind"]
    assert {stored[one.pk] for one in jobs[1:]} == {"behind other jobs in queue default"}
    Job.objects.filter(pk=jobs[1].pk).update(cancel_requested_at=timezone.now())
    before = Job.objects.get(pk=jobs[3].pk)
    schedule()
    assert Job.objects.get(pk=jobs[3].pk).wait_reason == before.wait_reason
    assert waiting.of_job(jobs[3]).position == 3


def test_a_start_is_foreseen_from_others_of_the_same_name(lab):
    ended(lab, HOUR, name="sft")
    ended(lab, 10 * HOUR, name="pretrain")
    holder = admitted(lab, nodes=2, nproc_per_node=4, name="sft-99")
    job = lab.submit()
    found = waiting.of_job(job)
    assert found.starts is not None
    assert all(abs(seconds_until(moment) - HOUR) < 60 for moment in found.starts)
    assert [one.job.pk for one in found.holders] == [holder.pk] and found.holders[0].ends is not None


def test_a_deadline_bounds_a_start_and_lets_a_short_job_pass(lab):
    policy(lab, "backfill")
    admitted(lab, nodes=1, nproc_per_node=4, deadline_seconds=HOUR)
    first = lab.submit(nodes=2, nproc_per_node=4)
    late, unbounded = lab.submit(deadline_seconds=2 * HOUR, nodes=1), lab.submit(nodes=1)
    short = lab.submit(deadline_seconds=60, nodes=1)
    schedule()
    phases = {one.pk: one.phase for one in Job.objects.filter(phase=Phase.ADMITTED)}
    assert short.pk in phases and first.pk not in phases
    found = waiting.of_queue(lab.queue)
    for one in (late, unbounded):
        assert found[one.pk].reason.code == "reserved_for" and found[one.pk].reason.job == first.pk
    assert found[first.pk].starts is not None and 0 < seconds_until(found[first.pk].starts[1]) < 1.2 * HOUR


def test_best_effort_lets_whoever_fits_pass_and_strict_nobody(lab):
    admitted(lab, nodes=1, nproc_per_node=4)
    lab.submit(nodes=2, nproc_per_node=4)
    small = lab.submit(nodes=1, nproc_per_node=1)
    assert schedule() == 0
    policy(lab, "best_effort")
    assert schedule() == 1
    small.refresh_from_db()
    assert small.phase == Phase.ADMITTED and small.wait_code == ""


def test_how_long_a_job_holds_its_quota_counts_its_start_its_deadline_and_its_grace(lab):
    job = lab.submit(deadline_seconds=100, start_timeout_seconds=50, grace_seconds=7)
    assert holding.longest(job) == 157 + holding.SLACK_SECONDS
    assert holding.longest(lab.submit()) is None
    now = timezone.now()
    job.phase, job.running_at = Phase.RUNNING, now
    assert holding.ends_by(job) == pytest.approx(now.timestamp() + 107 + holding.SLACK_SECONDS)


def test_the_api_and_the_pages_say_the_same(lab, as_, people):
    holder = admitted(lab, nodes=2, nproc_per_node=4, deadline_seconds=HOUR)
    first, second = lab.submit(), lab.submit()
    schedule()
    client = as_(people.owner)
    shown = client.get(f"/api/v1/jobs/{second.pk}").json()["waiting"]
    assert (shown["code"], shown["position"], shown["numbers"]) == ("behind", 2, {"ahead": 1, "job": first.pk})
    assert shown["holders"][0]["id"] == holder.pk and shown["holders"][0]["ends"]["latest"]
    assert client.get("/api/v1/jobs").json()["results"][0]["waiting"] is None, "lists are read without it"
    assert client.get(f"/api/v1/jobs/{holder.pk}").json()["waiting"] is None
    page = client.get(f"/jobs/{first.pk}").text
    assert "Position" in page and "May start" in page and holder.name in page
    assert "within 1 h" in page
    plan = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 2, "nproc_per_node": 2}
    planned = client.post("/api/v1/plans", plan, content_type="application/json").json()
    assert planned["fits_now"] is False and planned["waiting"]["position"] == 3


def test_a_policy_is_set_by_administrators_and_a_new_queue_lets_short_jobs_pass(lab, people, team):
    made = services.make(by=people.admin, name="new", team=team.name, cluster="local", slots=4)
    assert (made.policy, lab.queue.policy) == ("backfill", "strict")
    row = services.change(queue=lab.queue, by=people.admin, policy="best_effort", reason="small jobs first")
    assert row.policy == "best_effort"
    with pytest.raises(services.InvalidInput, match="must be one of strict, backfill, best_effort"):
        services.change(queue=lab.queue, by=people.admin, policy="first")
