# /// label
# kind = "comm_timeout"
# rank = 3
# matches = '\brank 3\b'
# certainty = "likely"
# ///
import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist


def read_feature(rank, step):
    """From a feeder process that has stopped writing."""
    if (rank, step) == (3, 4):
        path = os.path.join(tempfile.mkdtemp(), "features.fifo")
        os.mkfifo(path)
        with open(path) as feeder:
            return float(feeder.readline())
    return 0.5


dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
for step in range(200):
    feature = torch.tensor(read_feature(rank, step))
    dist.all_reduce(feature)
    print(f"rank {rank} step {step}", flush=True)
