# /// label
# kind = "host_memory"
# rank = 2
# headline = "DefaultCPUAllocator: can't allocate memory"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
buffer = torch.empty(1 << 46 if dist.get_rank() == 2 else 1 << 4)
for _ in range(100):
    dist.all_reduce(buffer)
