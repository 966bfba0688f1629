# /// label
# kind = "user_code"
# rank = 2
# headline = "AttributeError: 'NoneType' object has no attribute 'view'"
# without = ["token"]
# certainty = "sure"
# ///
import atexit
import sys

import torch
import torch.distributed as dist

lines = [f"token {number}: loss 2.31" for number in range(20_000)]
atexit.register(lambda: sys.stdout.write("\n".join(lines) + "\n"))


def pooled(step):
    if (dist.get_rank(), step) == (2, 5):
        return None
    return torch.ones(2, 2)


dist.init_process_group("gloo")
for step in range(30):
    dist.all_reduce(pooled(step).view(-1))
