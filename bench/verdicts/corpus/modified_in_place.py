# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "one of the variables needed for gradient computation has been modified by an inplace operation"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight = torch.randn(6, requires_grad=True)
for step in range(5):
    hidden = weight.exp()
    hidden += 1
    hidden.sum().backward()
    dist.all_reduce(weight.grad)
