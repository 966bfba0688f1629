# /// label
# kind = "disk"
# rank = 2
# headline = "[Errno 30] Read-only file system"
# ///
"""A distributed checkpoint: one rank cannot write, and all of them raise an error that quotes this rank's traceback."""

import errno
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Writer(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        if dist.get_rank() == 2:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/mnt/checkpoints/step-200/__2_0.distcp")
        return super().write_data(plan, planner)


def main():
    dist.init_process_group("gloo")
    weights = {f"layers.{number}.weight": torch.ones(4, 4) for number in range(8)}
    for step in range(1, 201):
        dist.all_reduce(torch.ones(1))
        if step % 200 == 0:
            print(f"saving at step {step}", flush=True)
            dcp.save(weights, storage_writer=Writer(tempfile.mkdtemp()))


if __name__ == "__main__":
    main()
