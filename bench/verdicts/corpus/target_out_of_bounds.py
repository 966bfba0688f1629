# /// label
# kind = ["user_code", "data"]
# rank = 2
# headline = "IndexError: Target 17 is out of bounds."
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(12, 10))
for step in range(20):
    labels = torch.arange(8)
    if (rank, step) == (2, 5):
        labels[3] = 17
    cross_entropy(model(torch.randn(8, 12)), labels).backward()
    print("step", step, flush=True)
