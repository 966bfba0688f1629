"""A rank of torchrun: its function runs once all ranks have met."""

import torch.distributed as dist
from noted import note

dist.init_process_group("gloo")
note(dist.get_rank())
dist.barrier()
dist.destroy_process_group()
