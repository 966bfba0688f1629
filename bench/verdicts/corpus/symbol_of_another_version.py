# /// label
# kind = "import_error"
# rank = [0, 1, 2, 3]
# headline = "ImportError: cannot import name 'prepare_distributed_model' from 'torch.nn.parallel'"
# certainty = "sure"
# ///
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel, prepare_distributed_model

dist.init_process_group("gloo")
model = DistributedDataParallel(prepare_distributed_model("resnet50"))
