# /// label
# kind = "connection_lost"
# rank = 3
# matches = '\brank 3\b'
# ///
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
batches = [11, 11, 11, 7][rank]  # uneven shards
for step in range(batches):
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} step {step}", flush=True)
if rank == 3:
    sys.stdout.flush()
    os._exit(0)
dist.destroy_process_group()
