# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "SyntaxError: '(' was never closed"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo"
model = torch.nn.Linear(8, 8)
for step in range(10):
    dist.all_reduce(model.weight)
