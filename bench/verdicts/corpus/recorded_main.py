# /// label
# kind = "user_code"
# rank = 2
# headline = "ArithmeticError: gradient norm 1e+20 at step 4 is beyond the limit of 1e+04"
# certainty = "sure"
# ///
"""Its main is wrapped in torch's `record`, which writes the error to a file for torchrun."""

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

LIMIT = 1e4


@record
def main():
    dist.init_process_group(backend="gloo")
    me = dist.get_rank()
    for step in range(12):
        gradient = torch.full([3], 1e20 if (me, step) == (2, 4) else 1.0, dtype=torch.float64)
        norm = gradient.abs().max().item()
        if norm > LIMIT:
            raise ArithmeticError(f"gradient norm {norm:.0e} at step {step} is beyond the limit of {LIMIT:.0e}")
        dist.all_reduce(gradient)


main()
