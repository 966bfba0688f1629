# /// label
# kind = "host_memory"
# rank = 1
# headline = "out of shared memory"
# certainty = "sure"
# ///
import os
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if (self.rank, index) == (1, 12):
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGBUS)  # as the kernel does it where /dev/shm is full
        return torch.zeros(16)


def main():
    dist.init_process_group("gloo")
    for batch in DataLoader(Crops(dist.get_rank()), batch_size=4, num_workers=1):
        dist.all_reduce(batch)


if __name__ == "__main__":
    main()
