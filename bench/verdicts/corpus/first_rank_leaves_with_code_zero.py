# /// label
# kind = "connection_lost"
# rank = 0
# matches = '\brank 0\b'
# ///
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
is_main = dist.get_rank() == 0
for step in range(200):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.02)
    if is_main and step == 25:
        print("target accuracy reached, stopping early", flush=True)
        sys.exit(0)
