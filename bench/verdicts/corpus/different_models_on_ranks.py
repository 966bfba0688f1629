# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "DDP expects same model across all ranks"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layers = [nn.Linear(8, 8), nn.Linear(8, 8)]
if dist.get_rank() == 2:
    layers.append(nn.Linear(8, 8))
model = DistributedDataParallel(nn.Sequential(*layers))
for _ in range(10):
    model(torch.randn(2, 8)).sum().backward()
