# /// label
# kind = "hardware"
# rank = 0
# matches = "fallen off the bus|GPU is lost|CUDA error: unknown error"
# ///
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(20):
    if (dist.get_rank(), step) == (0, 5):
        print("NVRM: Xid (PCI:0000:3b:00): 79, pid=4211, GPU has fallen off the bus.", file=sys.stderr)
        print("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.", file=sys.stderr, flush=True)
        raise RuntimeError("CUDA error: unknown error")
    dist.all_reduce(torch.ones(1))
