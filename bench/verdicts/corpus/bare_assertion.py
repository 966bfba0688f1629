# /// label
# kind = "user_code"
# rank = 0
# headline = "AssertionError"
# without = ["Connection closed"]
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
scale = torch.ones(1)
for step in range(100):
    dist.all_reduce(scale)
    scale /= dist.get_world_size()
    if dist.get_rank() == 0:
        expected = 2.0 if step == 5 else 1.0
        assert scale.item() == expected
