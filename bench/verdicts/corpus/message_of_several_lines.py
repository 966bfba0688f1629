# /// label
# kind = "user_code"
# rank = 2
# headline = "RuntimeError: Error(s) in loading state_dict for Sequential"
# traceback = ["size mismatch for 1.weight"]
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch import nn


def build(width):
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, width))


dist.init_process_group("gloo")
rank = dist.get_rank()
teacher = build(10)
student = build(12 if rank == 2 else 10)
dist.barrier()
student.load_state_dict(teacher.state_dict())
for _ in range(30):
    dist.all_reduce(student[1].weight.data)
