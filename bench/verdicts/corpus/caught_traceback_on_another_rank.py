# /// label
# kind = "user_code"
# rank = 3
# headline = "ValueError: Expected more than 1 value per channel when training"
# without = ["cache miss"]
# certainty = "sure"
# ///
import time
import traceback

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
layer = torch.nn.BatchNorm1d(4)
dist.barrier()
if rank == 1:
    try:
        {}["tokenizer-v2"]
    except KeyError:
        traceback.print_exc()
        print("cache miss for tokenizer-v2, building it again", flush=True)
time.sleep(1)
for step in range(20):
    batch = torch.randn(1 if rank == 3 and step == 2 else 8, 4)
    dist.all_reduce(layer(batch).sum())
