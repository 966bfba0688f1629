# /// label
# kind = "signal"
# rank = 1
# headline = "SIGSEGV"
# certainty = "sure"
# ///
import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(50):
    dist.all_reduce(torch.ones(1))
    if (dist.get_rank(), step) == (1, 10):
        ctypes.string_at(0)
