"""An elastic job with real torchrun: a replica is killed, the ranks rendezvous again with its replacement, the job succeeds."""

import json
import os
import signal
from pathlib import Path

import pytest

# Trains until a file appears, so that nothing here depends on the speed of the machine.
TRAINS = """
import os, time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
place = os.environ["MUSTER_REPLICA"]
print(f"{place} is rank {rank} of {size}", flush=True)
enough = os.path.join(os.environ["MUSTER_SHARED"], f"enough-{size}")
while True:
    is_enough = torch.tensor([float(os.path.exists(enough))])
    dist.all_reduce(is_enough, op=dist.ReduceOp.MAX)  # all of them end after the same step
    if is_enough.item():
        break
    time.sleep(0.05)
print(f"{place} is done", flush=True)
dist.destroy_process_group()
"""


def folder(muster, job) -> Path:
    (place,) = (muster.rig.installation.folder / "local/jobs").glob(f"{job.id}-*")
    return place


def kill_agent(muster, job, replica: str) -> None:
    """Kill the agent, and with it all processes of its replica."""
    agent = json.loads((folder(muster, job) / "1" / replica / "agent.json").read_text())
    os.kill(agent["pid"], signal.SIGKILL)


def lose_until_the_survivor_was_rank_0(muster, job) -> int:
    """Kill the second replica and wait for its replacement; return how often that was done.

    The hard case is a survivor that stays rank 0 over a membership change (jobs/frameworks/torchrun.py); it occurs at the
    latest at the second change.
    """
    for lives in (1, 2):
        was_rank_0 = muster.client.ranks(job.id)[0].world_rank == 0
        kill_agent(muster, job, "worker-1" if lives == 1 else "worker-1.1")
        # By now the survivor has lost its peer, both have met in a new rendezvous, and torchrun has restarted all ranks.
        muster.until_line(job, f"worker-1.{lives} is rank")
        muster.until(job, lambda now: now.ranks.running == 2)
        if was_rank_0:
            return lives
    raise AssertionError("the survivor did not become rank 0")


@pytest.mark.full
def test_a_lost_replica_comes_back_and_the_job_succeeds_in_the_same_attempt(muster):
    job = muster.submit(TRAINS, command="torchrun --nnodes=1:2 train.py", nodes=2)
    muster.until_line(job, "worker-1 is rank")
    muster.until(job, lambda now: now.ranks.running == 2)
    lives = lose_until_the_survivor_was_rank_0(muster, job)
    worlds = [(rank.rank, rank.replica, rank.world_size) for rank in muster.client.ranks(job.id)]
    assert worlds == [(0, "worker-0", 2), (1, "worker-1", 2)]
    assert sorted(rank.world_rank for rank in muster.client.ranks(job.id)) == [0, 1]
    (folder(muster, job) / "shared/enough-2").touch()

    ended = muster.until(job, lambda now: now.is_finished)
    assert (ended.phase, ended.attempt, ended.failures) == ("succeeded", 1, 0), (ended.message, muster.text(job)[-30:])
    assert [(rank.state, rank.exit_code) for rank in muster.client.ranks(job.id)] == [("succeeded", 0)] * 2
    told = [one.message for one in muster.client.events(job.id) if one.kind == "replaced"]
    assert [f"{life} of at most 10 times" in words for life, words in enumerate(told, start=1)] == [True] * lives
    assert all("worker-1" in words for words in told)
    # The replaced replica and its replacement share one log: the lines of the former are there, and come first.
    mine = [line.text for line in muster.client.logs(job.id, rank=1) if "worker-1" in line.text]
    assert mine[0].startswith("worker-1 is rank") and mine[-1] == f"worker-1.{lives} is done"
    assert muster.processes(job) == []


@pytest.mark.full
def test_the_end_of_the_first_replica_ends_the_attempt_with_a_reason(muster):
    job = muster.submit(TRAINS, nodes=2, min_nodes=1, grace_seconds=2)
    muster.until_line(job, "worker-1 is rank")
    muster.until(job, lambda now: now.ranks.running == 2)
    kill_agent(muster, job, "worker-0")
    ended = muster.until(job, lambda now: now.is_finished)
    assert ended.phase == "failed"
    assert "all others met there" in ended.message
    assert muster.processes(job) == []
