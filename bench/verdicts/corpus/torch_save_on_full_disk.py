# /// label
# kind = "disk"
# rank = 0
# matches = "No space left on device|PytorchStreamWriter failed writing|unexpected pos|iostream error"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(1024, 1024)
dist.barrier()
if dist.get_rank() == 0:
    print("saving /dev/full", flush=True)
    torch.save(model.state_dict(), "/dev/full")
dist.barrier()
