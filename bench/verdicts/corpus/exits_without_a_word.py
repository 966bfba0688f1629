# /// label
# kind = "unknown"
# rank = 2
# headline = "exited with code 3"
# without = ["Connection closed"]
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(50):
    dist.all_reduce(torch.ones(1))
    if (dist.get_rank(), step) == (2, 9):
        os._exit(3)
