"""A real torchrun job with a master of its own: three torchruns of two roles, with different numbers of ranks, reduce a sum."""

import pytest

SOAK = pytest.mark.soak(guards=("jobs/frameworks", "jobs/clusters/local", "agent/ranks"))
SCRIPT = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
print(os.environ["MUSTER_REPLICA"], "node", os.environ["GROUP_RANK"], "sum", int(total), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
if os.environ["MUSTER_REPLICA"] == "worker-1":
    time.sleep(3)
    print("saved", flush=True)
"""


@SOAK
def test_a_master_and_workers_reduce_over_all_their_ranks_and_none_is_cut_off(muster):
    fields = {"master_memory": "1Gi", "master_processes": 2}
    job = muster.submit(SCRIPT, nodes=3, nproc_per_node=1, fields=fields)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert (ended.phase, ended.layout) == ("succeeded", "1 master + 2 worker"), (ended.message, text)
    places = {"master-0 node 0", "worker-0 node 1", "worker-1 node 2"}
    assert set(text) >= {f"{place} sum 6 of 4" for place in places}
    assert "saved" in text, "it ended last, after the master's ranks"
    ranks = {one.rank: (one.replica, one.state) for one in muster.client.ranks(job.id)}
    order = ["master-0", "master-0", "worker-0", "worker-1"]
    assert ranks == {number: (place, "succeeded") for number, place in enumerate(order)}
    assert muster.processes(job) == []
