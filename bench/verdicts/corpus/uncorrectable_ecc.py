# /// label
# kind = "hardware"
# rank = 3
# headline = "CUDA error: uncorrectable ECC error encountered"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

SAID = """CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""

dist.init_process_group("gloo")
for step in range(20):
    if (dist.get_rank(), step) == (3, 7):
        raise RuntimeError(SAID)
    dist.all_reduce(torch.ones(1))
