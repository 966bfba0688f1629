"""A node stops answering: its replica is lost, the node is named, and the quota is held until the replica is gone."""

import pytest
from django.utils import timezone

from jobs.analysis import failures
from jobs.control.store import plan_of
from jobs.core.lifecycle import Phase
from jobs.ingest import apply
from jobs.models import Replica
from tests.support.builders import batch, identity, item


@pytest.fixture
def job(lab):
    return lab.running()


def connection_lost(job, index: int) -> None:
    now = timezone.now().timestamp()
    said = {"exit_code": 1, "at": now, "error_at": now, "is_connection_error": True}
    items = [item("rank", rank=2 * index, local_rank=0, state="failed", **said)]
    apply.apply_batch(identity=identity(job, index), batch=batch(1, *items))


def test_the_node_is_stored_with_the_replica_and_stays(lab, job):
    lab.cluster.silence(job.run, 1, "worker", index=1, node="gpu-3")
    lab.visit(job)
    row = Replica.objects.get(job=job, index=1)
    assert (row.node, row.reason, row.state) == ("gpu-3", "its node gpu-3 does not answer", "lost")


def test_a_lost_node_is_named_and_keeps_its_quota_until_it_is_gone(lab, job):
    lab.cluster.silence(job.run, 1, "worker", index=1, node="gpu-3")
    job = lab.visit(job, times=6)
    assert job.phase == Phase.STOPPING, "whoever is silent may still train"
    lab.cluster.lose(job.run, 1, "worker", index=1)
    job = lab.visit(job, times=4)
    assert job.phase == Phase.FAILED
    assert "worker-1 vanished: its node gpu-3 does not answer" in job.message


def test_ranks_that_only_lost_their_connection_to_the_node_are_not_blamed(lab, job):
    connection_lost(job, 0)
    assert failures.first_failure(job).rank == 0
    lab.cluster.silence(job.run, 1, "worker", index=1, node="gpu-3")
    lab.visit(job, times=2)
    lab.cluster.lose(job.run, 1, "worker", index=1)
    job = lab.visit(job, times=4)
    assert job.phase == Phase.FAILED and "gpu-3" in job.message
    assert failures.first_failure(job).explanation == "worker-1: its node gpu-3 does not answer"


def test_a_retry_avoids_the_node_that_a_verdict_blames(lab):
    job = lab.running(max_retries=2)
    assert plan_of(job, 1).avoided_nodes == ()
    lab.cluster.silence(job.run, 1, "worker", index=1, node="gpu-3")
    lab.visit(job)
    lab.cluster.lose(job.run, 1, "worker", index=1)
    lab.visit(job, times=6)
    assert (job.attempt, plan_of(job, 2).avoided_nodes) == (2, ("gpu-3",))
    lab.finish(job, 1, 1)  # a failure of its own code blames no node
    lab.visit(job, times=4)
    assert (job.attempt, plan_of(job, 3).avoided_nodes) == (3, ("gpu-3",))
