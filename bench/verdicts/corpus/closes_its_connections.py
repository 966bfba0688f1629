# /// label
# kind = "connection_lost"
# rank = 1
# matches = '\brank 1\b'
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(500):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
    if (rank, step) == (1, 20):
        print("epoch budget used up, leaving the group", flush=True)
        dist.destroy_process_group()
        break
time.sleep(3 if rank == 1 else 0)
