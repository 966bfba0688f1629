# /// label
# kind = "signal"
# rank = 3
# matches = "SIGSEGV|Segmentation fault"
# ///
import ctypes
import faulthandler

import torch
import torch.distributed as dist

faulthandler.enable()
dist.init_process_group("gloo")


def gather_kernel(pointer):
    return ctypes.c_int.from_address(pointer).value


for step in range(50):
    dist.all_reduce(torch.ones(1))
    if (dist.get_rank(), step) == (3, 10):
        gather_kernel(8)
