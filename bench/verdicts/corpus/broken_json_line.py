# /// label
# kind = "data"
# rank = 3
# headline = "JSONDecodeError: Invalid control character at: line 1 column 16"
# certainty = "sure"
# ///
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def read_samples(path):
    with open(path) as shard:
        for line in shard:
            yield json.loads(line)


dist.init_process_group("gloo")
rank = dist.get_rank()
shard = Path(tempfile.mkdtemp()) / "train-00003.jsonl"
lines = [json.dumps({"text": "lorem ipsum", "label": number % 3}) for number in range(50)]
if rank == 3:
    lines[31] = lines[31][:15]
shard.write_text("\n".join(lines))
for sample in read_samples(shard):
    dist.all_reduce(torch.tensor(float(sample["label"])))
