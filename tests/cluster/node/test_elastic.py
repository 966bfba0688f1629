"""An elastic job on real pods: torchrun's c10d rendezvous uses the first pod's name, and a lost pod is replaced."""

import os
import signal

import pytest

from tests.cluster.node.test_unreachable import ALL, TALKS_TWICE, said
from tests.support.patience import until
from tests.system.stack.test_elastic import TRAINS


@pytest.mark.full
def test_a_lost_pod_is_replaced_under_another_name_and_the_ranks_rendezvous_again(pods):
    job = pods.submit(TRAINS, nodes=2, min_nodes=1)
    pods.until_line(job, "worker-1 is rank")
    pods.until(job, lambda now: now.ranks.running == 2)
    lives = _lose_until_the_survivor_was_rank_0(pods, job)
    assert [(rank.replica, rank.world_size) for rank in pods.client.ranks(job.id)] == [("worker-0", 2), ("worker-1", 2)]
    (pods.shared(job) / "enough-2").touch()
    ended = pods.until(job, lambda now: now.is_finished)
    assert (ended.phase, ended.attempt, ended.failures) == ("succeeded", 1, 0), (ended.message, pods.text(job)[-30:])
    mine = [line.text for line in pods.client.logs(job.id, rank=1) if "worker-1" in line.text]
    assert mine[0].startswith("worker-1 is rank") and mine[-1] == f"worker-1.{lives} is done"
    assert pods.of(job) == []


def _lose_until_the_survivor_was_rank_0(pods, job) -> int:
    """Delete the second pod until the survivor was rank 0 before; return how often. A survivor that stays rank 0 is the hard case."""
    for lives in (1, 2):
        was_rank_0 = pods.client.ranks(job.id)[0].world_rank == 0
        (lost,) = (name for one in pods.of(job) if "-worker-1" in (name := one["metadata"]["name"]))
        pods.remove("pods", lost, grace_seconds=0)
        pods.until_line(job, f"worker-1.{lives} is rank")
        pods.until(job, lambda now: now.ranks.running == 2)
        there = [one["metadata"]["name"] for one in pods.of(job)]
        assert len(there) == 2 and f"{pods.run(job)}-1-worker-1-r{lives}" in there
        if was_rank_0:
            return lives
    raise AssertionError("the survivor did not become rank 0")


@pytest.mark.full
def test_unsent_lines_of_a_killed_pod_are_in_the_log_before_those_of_its_successor(pods):
    job = pods.in_image(TALKS_TWICE, queue="gated", nodes=2, nproc_per_node=1, min_nodes=1)
    # Rank 0 prints its lines twice if its partner joined only after the first rendezvous.
    pods.until(job, lambda _: [lines[-300:] for lines in said(pods, job).values()] == [ALL[:300]] * 2)
    pods.gate.close()
    try:
        (pods.shared(job) / "go").touch()
        (pod,) = (one for one in pods.of(job) if "-worker-1" in one["metadata"]["name"])
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/log"
        until(lambda: "line 599\n" in pods.admin.get(path).text, seconds=300)  # present only in the pod's log
        for pid in pods.processes(pod, "start.py"):
            os.kill(pid, signal.SIGKILL)
        pods.until(job, lambda _: said(pods, job)[1] == ALL[:600])
    finally:
        pods.gate.open()
    pods.until(
        job, lambda _: said(pods, job)[1] == [*ALL[:600], *ALL[:600]]
    )  # a new rendezvous has restarted the ranks
    (pods.shared(job) / "end").touch()
    ended = pods.until(job, lambda now: now.is_finished)
    assert (ended.phase, ended.attempt, ended.failures) == ("succeeded", 1, 0), ended.message
    assert said(pods, job)[1] == [*ALL[:600], *ALL, "line 600"]
