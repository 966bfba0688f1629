# /// label
# kind = "user_code"
# rank = 3
# matches = "ExceptionGroup: 2 of 4 shards failed|TypeError: unsupported operand"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist


def tokens(shard):
    return len(shard["text"]) + shard["offset"]


def count(shards):
    errors, total = [], 0
    for shard in shards:
        try:
            total += tokens(shard)
        except TypeError as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(shards)} shards failed", errors)
    return total


dist.init_process_group("gloo")
wrong = "12" if dist.get_rank() == 3 else 12
shards = [{"text": "a b c", "offset": offset} for offset in (0, wrong, 24, wrong)]
total = torch.tensor(count(shards))
dist.all_reduce(total)
print(total.item())
