# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "FloatingPointError: loss is nan at step"
# certainty = "sure"
# ///
import math

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight, lr = torch.full((4,), 3.0), 1e6
for step in range(100):
    loss = weight.square().sum()
    dist.all_reduce(loss)
    print(f"step {step} loss {loss.item():.3g}", flush=True)
    if math.isnan(loss.item()):
        raise FloatingPointError(f"loss is {loss.item()} at step {step}, last good checkpoint: none")
    weight = weight - lr * 2 * weight
