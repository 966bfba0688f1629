# /// label
# kind = "disk"
# rank = 2
# headline = "OSError: [Errno 122] Disk quota exceeded: '/home/alice/runs/17/events.out'"
# certainty = "sure"
# ///
import errno
import os

import torch
import torch.distributed as dist


def append(path, line, *, left):
    """Stands for a file on a home with a quota."""
    if len(line) > left:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), path)


dist.init_process_group("gloo")
rank, left = dist.get_rank(), 200
for step in range(100):
    line = f"step {step} loss 0.5"
    if rank == 2:
        append("/home/alice/runs/17/events.out", line, left=left)
        left -= len(line)
    dist.all_reduce(torch.ones(1))
