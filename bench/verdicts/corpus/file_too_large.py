# /// label
# kind = "disk"
# rank = 3
# headline = "OSError: [Errno 27] File too large"
# certainty = "sure"
# ///
import resource
import tempfile
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
dist.barrier()
if rank == 3:
    with tempfile.NamedTemporaryFile(suffix=".npy") as cache:
        for _ in range(100):
            cache.write(bytes(100_000))
time.sleep(1)
dist.barrier()
