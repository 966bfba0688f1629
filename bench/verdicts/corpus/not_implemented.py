# /// label
# kind = "user_code"
# rank = 2
# headline = "NotImplementedError"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist


class Scheduler:
    def step(self, epoch):
        raise NotImplementedError


class Constant(Scheduler):
    def step(self, epoch):
        return 0.1


dist.init_process_group("gloo")
scheduler = Scheduler() if dist.get_rank() == 2 else Constant()
for epoch in range(10):
    dist.all_reduce(torch.ones(1))
    if epoch == 3:
        scheduler.step(epoch)
