# /// label
# kind = "comm_timeout"
# rank = 2
# matches = '\brank 2\b|waiting for (the )?lock'
# ///
"""Rank 2 waits for a lock that a run left behind which was killed. It is not silent: it says so, every second and for ever."""

import logging
import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("kernel_cache")


def compiled_kernel(lock):
    while os.path.exists(lock):
        log.info("waiting for lock %s", lock)
        time.sleep(1)
    return torch.ones(4)


dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
lock = os.path.join(tempfile.mkdtemp(), "fused_adam.lock")
if rank == 2:
    open(lock, "w").close()
dist.barrier()
weights = compiled_kernel(lock)
log.info("rank %d has its kernel", rank)
for _ in range(50):
    dist.all_reduce(weights)
