# /// label
# kind = ["config", "user_code"]
# rank = [0, 1, 2, 3]
# headline = "ValueError: global batch size 30 is not divisible by world size 4"
# certainty = "sure"
# ///
import torch.distributed as dist

GLOBAL_BATCH_SIZE = 30

dist.init_process_group("gloo")
if GLOBAL_BATCH_SIZE % dist.get_world_size():
    raise ValueError(
        f"global batch size {GLOBAL_BATCH_SIZE} is not divisible by world size {dist.get_world_size()}"
    )
