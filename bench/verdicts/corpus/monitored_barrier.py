# /// label
# kind = "comm_timeout"
# rank = 3
# matches = '(?i)\brank 3\b'
# ///
import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 3:
    print("evaluating on 1,000,000 samples", flush=True)
    time.sleep(3600)
dist.monitored_barrier(timeout=timedelta(seconds=5))
