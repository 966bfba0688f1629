# /// label
# kind = "disk"
# rank = 0
# headline = "OSError: [Errno 28] No space left on device"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

CHECKPOINTS = "/dev/full"  # a device that is always full

dist.init_process_group("gloo")
model = torch.nn.Linear(256, 256)
for step in range(40):
    dist.all_reduce(model.weight.data)
    model.weight.data /= dist.get_world_size()
    if step == 4 and dist.get_rank() == 0:
        with open(CHECKPOINTS, "wb") as file:
            file.write(model.weight.detach().numpy().tobytes())
