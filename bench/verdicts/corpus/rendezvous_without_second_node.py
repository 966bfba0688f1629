# /// label
# kind = "comm_timeout"
# rank = [2, 3]
# matches = '\bworker-1\b|\branks? [23]\b'
# ///
import os
import time
from datetime import timedelta

import torch.distributed as dist

if os.environ["GROUP_RANK"] == "1":
    print("copying the dataset to local disk", flush=True)
    time.sleep(3600)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
print("joined", flush=True)
