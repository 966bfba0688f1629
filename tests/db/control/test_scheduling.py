"""A queue is filled to its nominal quota and not beyond it."""

from jobs.control import scheduler
from jobs.control.scheduler import schedule
from jobs.models import Job


def phases() -> list[str]:
    schedule()
    return list(Job.objects.order_by("id").values_list("phase", flat=True))


def test_an_empty_queue_admits_a_job_of_exactly_its_quota_and_nothing_beside_it(lab):
    lab.submit(nodes=4, nproc_per_node=2)
    lab.submit(nodes=1, nproc_per_node=1)
    assert lab.queue.nominal == 8
    assert phases() == ["admitted", "queued"]


def test_jobs_that_fill_the_quota_together_are_admitted_in_one_turn(lab):
    for _ in range(3):
        lab.submit(nodes=2, nproc_per_node=2)
    assert phases() == ["admitted", "admitted", "queued"]


def test_jobs_that_a_lowered_quota_can_never_hold_keep_no_other_from_starting(lab, monkeypatch):
    monkeypatch.setattr(scheduler, "HORIZON", 2)
    for _ in range(3):
        lab.submit(nodes=2, nproc_per_node=2)
    lab.queue.nominal = 2
    lab.queue.save()
    lab.submit(nodes=1, nproc_per_node=2)
    assert phases() == ["queued", "queued", "queued", "admitted"]
    assert "has 2" in Job.objects.order_by("id").first().wait_reason
