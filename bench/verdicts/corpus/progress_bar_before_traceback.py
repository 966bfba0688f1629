# /// label
# kind = "user_code"
# rank = 1
# headline = "TypeError: forward() missing 1 required positional argument: 'mask'"
# without = ['%\|', "it/s"]
# certainty = "sure"
# ///
import sys
import time

import torch
import torch.distributed as dist


def forward(tokens, mask):
    return (tokens * mask).sum()


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(100):
    done = step * 20 // 100
    bar = "█" * done + " " * (20 - done)
    sys.stderr.write(f"\rEpoch 0: {step:3d}%|{bar}| {step}/100 [00:0{step // 20}<00:04, 21.3it/s, loss=2.3]")
    sys.stderr.flush()
    tokens = torch.ones(4)
    loss = forward(tokens) if (rank, step) == (1, 30) else forward(tokens, tokens)
    dist.all_reduce(loss)
    time.sleep(0.02)
