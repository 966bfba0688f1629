# /// label
# kind = "data"
# rank = [0, 1, 2, 3]
# headline = "FileNotFoundError: [Errno 2] No such file or directory: '/datasets/imagenet-1k/train/index.json'"
# certainty = "sure"
# ///
import json
from pathlib import Path

import torch.distributed as dist


class ImageNet:
    def __init__(self, root):
        self.samples = json.loads(Path(root, "train", "index.json").read_text())


dist.init_process_group("gloo")
dataset = ImageNet("/datasets/imagenet-1k")
print(len(dataset.samples))
