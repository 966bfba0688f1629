# /// label
# kind = ["user_code", "data"]
# rank = 1
# headline = "CUDA error: device-side assert triggered"
# ///
import sys

import torch
import torch.distributed as dist

ASSERTION = (
    "../aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [{},0,0] "
    "Assertion `t >= 0 && t < n_classes` failed."
)
SAID = """CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    for thread in range(8):
        print(ASSERTION.format(thread), file=sys.stderr)
    raise RuntimeError(SAID)
dist.barrier()
