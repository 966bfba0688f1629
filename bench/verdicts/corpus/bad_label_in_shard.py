# /// label
# kind = "data"
# rank = 2
# headline = "ValueError: shard-00007.tar: sample 4711: label 17 is outside 0..9"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def checked(label, *, shard, sample):
    if not 0 <= label <= 9:
        raise ValueError(f"{shard}: sample {sample}: label {label} is outside 0..9")
    return label


for sample in range(4700, 4720):
    label = checked(17 if (rank, sample) == (2, 4711) else sample % 10, shard="shard-00007.tar", sample=sample)
    dist.all_reduce(torch.tensor(label))
