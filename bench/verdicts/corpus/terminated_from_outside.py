# /// label
# kind = "signal"
# rank = 1
# headline = "SIGTERM"
# ///
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(100):
    dist.all_reduce(torch.ones(1))
    if (dist.get_rank(), step) == (1, 15):
        os.kill(os.getpid(), signal.SIGTERM)  # as somebody does who mistakes it for an old process
