# /// label
# kind = "comm_timeout"
# rank = 0
# matches = '\brank 0\b'
# ///
import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    print("downloading the tokenizer for everybody", flush=True)
    time.sleep(3600)
    store.set("tokenizer", "ready")
store.wait(["tokenizer"], timedelta(seconds=6))
print("tokenizer is here", flush=True)
