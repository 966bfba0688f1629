# /// label
# kind = ["signal", "host_memory"]
# rank = 1
# matches = "DataLoader worker \\(pid(\\(s\\))? \\d+\\) (is killed by signal: Killed|exited unexpectedly)"
# ///
"""Something kills a worker of the data loader, as the kernel does that runs out of memory; the rank itself lives to tell."""

import os
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 256

    def __getitem__(self, index):
        if self.rank == 1 and index == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((4, 4), float(index))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for number, frames in enumerate(DataLoader(Frames(rank), batch_size=8, num_workers=1 if rank == 1 else 0)):
        mean = frames.mean()
        dist.all_reduce(mean)
        print(f"batch {number}: {mean.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
