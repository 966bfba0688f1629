# /// label
# kind = "user_code"
# rank = 1
# headline = "mat1 and mat2 shapes cannot be multiplied (8x30 and 32x10)"
# without = ["Connection closed"]
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    width = 30 if rank == 1 and step == 6 else 32
    loss = model(torch.randn(8, width)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.3f}", flush=True)
