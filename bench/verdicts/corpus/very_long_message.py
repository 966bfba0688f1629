# /// label
# kind = "user_code"
# rank = 0
# headline = "ValueError: unexpected parameters: ['layers.0.weight', 'layers.1.weight'"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
names = [f"layers.{number}.weight" for number in range(4000)]
dist.barrier()
if dist.get_rank() == 0:
    raise ValueError(f"unexpected parameters: {names}")
dist.all_reduce(torch.ones(1))
