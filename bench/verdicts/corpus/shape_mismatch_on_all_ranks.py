# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "RuntimeError: shape '[64, 784]' is invalid for input of size 401408"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.head = nn.Linear(784, 10)

    def forward(self, images):
        features = torch.relu(self.conv(images))
        return self.head(features.view(images.size(0), 784))


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
for _ in range(10):
    model(torch.randn(64, 1, 28, 28)).sum().backward()
