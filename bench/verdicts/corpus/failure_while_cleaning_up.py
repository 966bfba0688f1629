# /// label
# kind = "user_code"
# rank = 1
# matches = "IndexError: list index out of range|AttributeError: 'NoneType' object has no attribute 'close'"
# traceback = ["IndexError: list index out of range"]
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
writer = None
schedule = [0.1, 0.05, 0.01]
try:
    for epoch in range(8):
        lr = schedule[epoch if rank == 1 else 0]
        dist.all_reduce(torch.tensor(lr))
        print(f"epoch {epoch} lr {lr}", flush=True)
except IndexError:
    writer.close()
    raise
