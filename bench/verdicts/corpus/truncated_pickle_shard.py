# /// label
# kind = "data"
# rank = 1
# matches = "UnpicklingError: pickle data was truncated"
# certainty = "sure"
# ///
import pickle
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = Path(tempfile.mkdtemp(prefix="shards-"))
packed = pickle.dumps([[float(number)] * 64 for number in range(100)])
for shard in range(4):
    is_cut = (rank, shard) == (1, 2)
    (folder / f"shard-{shard:05d}.pkl").write_bytes(packed[: len(packed) // 2] if is_cut else packed)
for path in sorted(folder.iterdir()):
    samples = pickle.loads(path.read_bytes())
    mean = torch.tensor(samples).mean()
    dist.all_reduce(mean)
    print(path.name, mean.item(), flush=True)
