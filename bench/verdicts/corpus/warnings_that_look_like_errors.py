# /// label
# kind = "user_code"
# rank = 1
# headline = "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation"
# without = ["UserWarning", "DeprecationWarning"]
# certainty = "sure"
# ///
import sys
import warnings

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
bias = torch.zeros(4, requires_grad=True)
for step in range(10):
    warnings.warn("Error while looking for cuDNN: falling back to native kernels", UserWarning, stacklevel=1)
    print("[W1122 10:11:12.000000 Fatal.cpp:12] Warning: failed to load profiler plugin (CUDA error)", file=sys.stderr)
    dist.all_reduce(torch.ones(4))
    if (rank, step) == (1, 7):
        bias += 1
