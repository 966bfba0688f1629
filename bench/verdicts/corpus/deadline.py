# /// label
# kind = "deadline"
# headline = "deadline"
# without = ["rank"]
# certainty = "sure"
#
# [job]
# deadline_seconds = 25
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(1_000_000):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.1)
