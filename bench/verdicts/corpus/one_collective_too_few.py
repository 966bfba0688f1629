# /// label
# kind = "comm_timeout"
# rank = [0, 1, 2, 3]
# matches = "(?i)time"
# certainty = "likely"
# ///
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
for step in range(20):
    loss = torch.rand(1)
    if not (rank == 1 and step == 7):  # "skips a bad batch", and with it the others' collective
        dist.all_reduce(loss)
print(f"rank {rank} is through its epoch", flush=True)
dist.all_gather_object([None] * 4, {"rank": rank})
