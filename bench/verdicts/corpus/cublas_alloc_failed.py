# /// label
# kind = "device_memory"
# rank = 0
# headline = "CUBLAS_STATUS_ALLOC_FAILED"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(10):
    if (dist.get_rank(), step) == (0, 2):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    dist.all_reduce(torch.ones(1))
