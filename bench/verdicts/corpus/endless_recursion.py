# /// label
# kind = "user_code"
# rank = 3
# headline = "RecursionError: maximum recursion depth exceeded"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist


def depth(tree):
    return 1 + max(depth(child) for child in tree)


dist.init_process_group("gloo")
leaf = [[]]
if dist.get_rank() == 3:
    leaf[0] = leaf
dist.barrier()
print(depth(leaf) if dist.get_rank() == 3 else 1, flush=True)
for _ in range(100):
    dist.all_reduce(torch.ones(1))
