# /// label
# kind = "comm_timeout"
# rank = 0
# matches = '\brank 0\b'
# certainty = "likely"
# ///
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=6))
rank = dist.get_rank()
lock = threading.Lock()
for step in range(1000):
    loss = torch.rand(1)
    dist.all_reduce(loss)
    if rank == 0:
        print(f"step {step} loss {loss.item() / 4:.3f}", flush=True)
        if step == 10:
            with lock:
                lock.acquire()  # the second time: it never returns
