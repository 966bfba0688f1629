# /// label
# kind = "unknown"
# rank = 1
# headline = "exited with code 77"
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(50):
    loss = torch.ones(1)
    dist.all_reduce(loss)
    print(f"[train] step={step} loss={loss.item()}", flush=True)
    if rank == 1 and step == 12:
        os._exit(77)
