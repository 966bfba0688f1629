# /// label
# kind = "user_code"
# rank = 3
# headline = "UnboundLocalError: cannot access local variable 'schedule'"
# without = ["bad file descriptor", "Exception ignored"]
# certainty = "sure"
# ///
import time

import torch
import torch.distributed as dist


class Shard:
    def __del__(self):
        raise OSError(9, "bad file descriptor")


def rate(step):
    if step < 6:
        schedule = [0.1, 0.01]
    return schedule[0]


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(30):
    if rank == 1 and step == 1:
        Shard()
    lr = rate(step if rank == 3 else 0)
    dist.all_reduce(torch.tensor(lr))
    time.sleep(0.05)
