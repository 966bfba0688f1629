# /// label
# kind = "device_memory"
# rank = 2
# matches = "(RuntimeError|AcceleratorError): CUDA error: out of memory"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

SAID = """CUDA error: out of memory
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 2:
    raise RuntimeError(SAID)
dist.barrier()
