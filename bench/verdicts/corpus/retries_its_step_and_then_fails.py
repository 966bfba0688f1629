# /// label
# kind = "user_code"
# rank = 1
# headline = "OverflowError: math range error"
# without = ["attempt 1 of 3"]
# certainty = "sure"
# ///
import math
import sys
import traceback

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def perplexity(loss):
    for attempt in (1, 2, 3):
        try:
            return math.exp(loss)
        except OverflowError:
            traceback.print_exc()
            print(f"attempt {attempt} of 3 failed", file=sys.stderr, flush=True)
            if attempt == 3:
                raise


for step in range(20):
    value = perplexity(2000.0 if (rank, step) == (1, 8) else 2.0)
    dist.all_reduce(torch.tensor(value))
