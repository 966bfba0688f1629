# /// label
# kind = "data"
# rank = [0, 1, 2, 3]
# headline = "PytorchStreamReader failed"
# certainty = "sure"
# ///
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = Path(tempfile.mkdtemp()) / "step-001200.pt"
torch.save({"model": torch.nn.Linear(512, 512).state_dict(), "step": 1200}, path)
path.write_bytes(path.read_bytes()[:500_000])  # as a node leaves it that went down while writing
state = torch.load(path)
print("going on from step", state["step"])
