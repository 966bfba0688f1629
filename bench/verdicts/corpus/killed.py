# /// label
# kind = "signal"
# rank = 2
# headline = "SIGKILL"
# without = ["Connection closed"]
# ///
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    dist.all_reduce(torch.ones(1))
    print(f"step {step}", flush=True)
    if (dist.get_rank(), step) == (2, 15):
        os.kill(os.getpid(), signal.SIGKILL)
