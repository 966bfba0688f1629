# /// label
# kind = "user_code"
# rank = 0
# headline = "validation loss did not improve for 3 epochs"
# ///
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
best, waited = 1.0, 0
for epoch in range(20):
    loss = torch.tensor(1.0 + epoch / 10)
    dist.all_reduce(loss)
    if rank == 0:
        print(f"epoch {epoch} validation loss {loss.item():.3f}", flush=True)
        waited += loss.item() > best
        if waited == 3:
            sys.exit("validation loss did not improve for 3 epochs, giving up")
    time.sleep(0.1)
