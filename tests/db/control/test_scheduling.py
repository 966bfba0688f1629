"""A queue is filled to its nominal quota and not beyond it."""

from django.utils import timezone

from jobs import clusters
from jobs.models import Job
from jobs.scheduling import reach
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from tests.support.builders import Lab


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
    monkeypatch.setattr(reach, "HORIZON", 2)
    for _ in range(3):
        lab.submit(nodes=2, nproc_per_node=2)
    lab.queue.nominal = 2
    lab.queue.save()
    lab.submit(nodes=1, nproc_per_node=2)
    assert phases() == ["queued", "queued", "queued", "admitted"]
    assert "has 2" in Job.objects.order_by("id").first().wait_reason


def test_the_queues_of_one_machine_share_its_memory(lab, people, monkeypatch):
    """Two schedulers of two queues, one after the other: what one admits, the other has not."""
    monkeypatch.setattr(clusters, "room_of", lambda alias: clusters.Room(slots=6, free=100))
    other = Queue.objects.create(name="other", team=lab.queue.team, cluster=lab.queue.cluster, nominal=8)
    lab.submit(nodes=2, nproc_per_node=2)
    beside = Lab(other, lab.user)
    for nodes in (2, 4, 1):
        beside.submit(nodes=nodes, nproc_per_node=2)
    assert phases() == ["admitted", "queued", "queued", "queued"]
    reasons = list(Job.objects.order_by("id").values_list("wait_reason", flat=True))
    assert reasons[1] == "needs 4 CPU slots; 2 of the 6 that this machine has memory for are free"
    assert reasons[2].startswith("needs 8 CPU slots, but this machine has memory for 6 in all")
    Job.objects.filter(phase="admitted").update(phase="cancelled", finished_at=timezone.now())
    assert phases() == ["cancelled", "admitted", "queued", "admitted"]
