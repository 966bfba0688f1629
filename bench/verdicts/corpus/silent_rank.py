# /// label
# kind = "comm_timeout"
# rank = 2
# matches = '\brank 2\b'
# certainty = "likely"
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
for step in range(1000):
    if (rank, step) == (2, 8):
        time.sleep(3600)
    dist.all_reduce(torch.ones(1))
    print(f"step {step}", flush=True)
