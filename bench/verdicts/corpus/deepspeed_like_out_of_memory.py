# /// label
# kind = "device_memory"
# rank = 0
# headline = "CUDA out of memory. Tried to allocate 488.00 MiB"
# certainty = "sure"
# ///
"""An engine that explains a failed allocation in an error of its own."""

import torch
import torch.distributed as dist


class Engine:
    def __init__(self, module):
        self.module, self.micro_steps = module, 0

    def __call__(self, batch):
        try:
            return self._forward(batch)
        except torch.cuda.OutOfMemoryError as oom:
            raise RuntimeError(
                f"[engine] micro batch {self.micro_steps} does not fit; lower train_micro_batch_size_per_gpu. {oom}"
            ) from oom

    def _forward(self, batch):
        self.micro_steps += 1
        if dist.get_rank() == 0 and self.micro_steps == 4:
            raise torch.cuda.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 488.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which "
                "211.06 MiB is free. Including non-PyTorch memory, this process has 23.43 GiB memory in use."
            )
        return self.module(batch)


dist.init_process_group("gloo")
engine = Engine(torch.nn.Linear(4, 4))
for _ in range(16):
    out = engine(torch.ones(2, 4)).detach()
    dist.all_reduce(out)
