# /// label
# kind = ["disk", "config", "user_code"]
# rank = 0
# headline = "PermissionError: [Errno 13] Permission denied: '/sys/kernel/checkpoints.pt'"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0 and step == 5:
        with open("/sys/kernel/checkpoints.pt", "wb") as file:  # not even root may
            file.write(b"weights")
