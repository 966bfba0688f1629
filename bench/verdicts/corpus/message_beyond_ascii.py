# /// label
# kind = "user_code"
# rank = 1
# headline = "ValueError: Größe 3 × −1 ungültig: 词汇表为空 🙁"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for étape in range(10):
    dist.all_reduce(torch.ones(1))
    if (rank, étape) == (1, 4):
        raise ValueError("Größe 3 × −1 ungültig: 词汇表为空 🙁")
