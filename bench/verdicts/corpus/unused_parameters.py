# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, inputs):
        return self.left(self.body(inputs))


dist.init_process_group("gloo")
model = DistributedDataParallel(TwoHeads())
for _ in range(5):
    model(torch.randn(4, 8)).sum().backward()
