"""Which waiting jobs a pass reads: few, however many wait, and never too few. What is stored of the others."""

import pytest

from jobs import clusters
from jobs.models import Job
from jobs.scheduling import reach
from jobs.scheduling.scheduler import schedule
from queues import cohorts
from queues.models import Flavor, Queue
from queues.trees import sharing


def queue_has(lab, **values) -> None:
    Queue.objects.filter(pk=lab.queue.pk).update(**values)
    lab.queue.refresh_from_db()


def read(lab) -> list[int]:
    shared = sharing(lab.queue)
    return [job.pk for job in reach.in_reach(shared, reach.held(shared.queues)).jobs]


def codes() -> list[str]:
    return list(Job.objects.filter(phase="queued").order_by("pk").values_list("wait_code", flat=True))


@pytest.mark.parametrize("policy", ["backfill", "best_effort"])
def test_a_small_job_behind_any_number_of_large_ones_is_found(lab, monkeypatch, policy):
    monkeypatch.setattr(reach, "HORIZON", 3)
    queue_has(lab, policy=policy)
    lab.running(nodes=1, nproc_per_node=4, deadline_seconds=3600)
    for _ in range(6):
        lab.submit(nodes=1, nproc_per_node=8)
    small = lab.submit(nodes=1, nproc_per_node=1, deadline_seconds=60)
    assert small.pk in read(lab)
    assert schedule() == 1
    small.refresh_from_db()
    assert small.phase == "admitted"


def test_small_jobs_do_not_pass_a_large_one_that_was_not_read_with_the_first(lab):
    """Of a cohort's queue two jobs are read first. Where both start, the next one waits as the first, whoever else is read."""
    cohorts.make_flavor(by=None, name="slots", cluster=lab.queue.cluster, resource="cpu")
    cohorts.set_quota(by=None, team=lab.queue.team, flavor="slots", nominal=16)
    queue_has(lab, policy="backfill", nominal=16, flavor=Flavor.objects.get(name="slots"))
    lab.running(nodes=1, nproc_per_node=6)  # without a deadline: nobody knows when the large one starts
    first = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(2)]
    large = lab.submit(nodes=1, nproc_per_node=12)
    small = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(9)]  # more than there is room for
    assert schedule() == 2
    assert {job.pk for job in Job.objects.filter(phase="admitted")} == {job.pk for job in first}
    large.refresh_from_db()
    assert large.wait_code == "waiting_for_quota"
    assert {Job.objects.get(pk=one.pk).wait_code for one in small} == {"behind"}


def test_of_a_full_strict_queue_little_is_read_and_everybody_has_a_reason(lab):
    lab.running(nodes=2, nproc_per_node=4)
    jobs = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(12)]
    assert read(lab) == [one.pk for one in jobs[: reach.SIZES[0]]]
    schedule()
    assert codes() == ["waiting_for_quota"] + ["behind"] * 11
    assert {one.wait_reason for one in Job.objects.filter(wait_code="behind")} == {"behind other jobs in queue default"}


def test_a_job_that_is_overtaken_is_behind_again(lab):
    lab.running(nodes=2, nproc_per_node=4)
    first = lab.submit(nodes=1, nproc_per_node=1)
    schedule()
    for _ in range(4):
        lab.submit(nodes=1, nproc_per_node=1, priority=5)
    schedule()
    first.refresh_from_db()
    assert first.wait_code == "behind"


def test_as_many_are_read_as_there_is_room_for(lab):
    queue_has(lab, nominal=40)
    jobs = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(45)]
    assert schedule() == 40
    assert codes() == ["waiting_for_quota"] + ["behind"] * 4
    assert Job.objects.get(pk=jobs[39].pk).phase == "admitted"


def test_names_that_are_taken_keep_nobody_behind_them_from_starting(lab, monkeypatch):
    """They are in line, and wait for a name: what is read of the queue first may be of no other kind."""
    monkeypatch.setattr(reach, "SIZES", (1,))
    monkeypatch.setattr(clusters.backend(lab.queue.cluster), "FINDS_BY_NAME", True)
    running, *named = [
        lab.running(nodes=1, nproc_per_node=1),
        *(lab.submit(nodes=1, nproc_per_node=1) for _ in range(3)),
    ]
    for job in (running, *named):
        Job.objects.filter(pk=job.pk).update(roles=[{**role, "exclusive": "mesh m"} for role in job.roles])
    other = lab.submit(nodes=1, nproc_per_node=1)
    assert schedule() == 1
    other.refresh_from_db()
    assert other.phase == "admitted" and codes() == ["name_in_use"] * 3


def test_a_closed_queue_is_not_read_and_all_say_so_until_it_opens(lab, monkeypatch):
    monkeypatch.setattr(reach, "HORIZON", 2)
    lab.running(nodes=2, nproc_per_node=4)
    for _ in range(5):
        lab.submit(nodes=1, nproc_per_node=1)
    queue_has(lab, is_open=False)
    assert read(lab) == []
    schedule()
    assert codes() == ["on_hold"] * 5
    queue_has(lab, is_open=True)
    schedule()
    assert codes() == ["waiting_for_quota"] + ["behind"] * 4


def test_where_jobs_may_pass_each_says_what_it_needs_and_again_after_the_quota_changed(lab, monkeypatch):
    monkeypatch.setattr(reach, "HORIZON", 1)
    monkeypatch.setattr(reach, "SIZES", ())
    queue_has(lab, policy="best_effort")
    lab.running(nodes=2, nproc_per_node=4)
    jobs = [lab.submit(nodes=1, nproc_per_node=slots) for slots in (1, 2, 2, 3)]
    schedule()
    assert codes() == ["waiting_for_quota"] * 4
    words = [Job.objects.get(pk=one.pk).wait_reason for one in jobs[1:]]
    assert words[0] == words[1] == "needs 2 CPU slots; queue default has less free of 8 CPU slots"
    assert words[2] == "needs 3 CPU slots; queue default has less free of 8 CPU slots"
    queue_has(lab, nominal=6)
    schedule()
    assert Job.objects.get(pk=jobs[3].pk).wait_reason == "needs 3 CPU slots; queue default has less free of 6 CPU slots"


def test_what_no_quota_will_ever_hold_says_so_also_after_the_quota_was_lowered(lab):
    lab.running(nodes=2, nproc_per_node=4)
    lab.submit(nodes=1, nproc_per_node=1)
    large = lab.submit(nodes=1, nproc_per_node=8)
    schedule()
    large.refresh_from_db()
    assert large.wait_code == "behind"
    queue_has(lab, nominal=7)
    schedule()
    large.refresh_from_db()
    assert large.wait_code == "exceeds_maximum"
