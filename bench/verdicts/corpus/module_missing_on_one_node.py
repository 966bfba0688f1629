# /// label
# kind = "import_error"
# rank = [2, 3]
# headline = "ModuleNotFoundError: No module named 'fused_rotary'"
# certainty = "sure"
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if os.environ["GROUP_RANK"] == "1":  # its image is older than that of the first node
    import fused_rotary
for step in range(100):
    dist.all_reduce(torch.ones(1))
