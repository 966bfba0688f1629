# /// label
# kind = "hardware"
# rank = 1
# headline = "uncorrectable NVLink error detected during the execution"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    raise torch.distributed.DistBackendError(
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3384, unhandled cuda error (run with NCCL_DEBUG=INFO "
        "for details), NCCL version 2.27.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 220 "
        "'uncorrectable NVLink error detected during the execution'"
    )
dist.barrier()
