# /// label
# kind = "device_memory"
# rank = 1
# headline = "CUDA out of memory. Tried to allocate 2.00 GiB"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.12 GiB is free. "
    "Process 31337 has 78.02 GiB memory in use. Of the allocated memory 74.51 GiB is allocated by PyTorch, and 2.70 GiB "
    "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def forward(step):
    if dist.get_rank() == 1 and step == 3:
        raise torch.OutOfMemoryError(SAID)
    return torch.ones(1)


dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(forward(step))
