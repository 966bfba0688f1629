# /// label
# kind = "user_code"
# rank = 2
# headline = "TypeError: unsupported operand type(s) for /: 'str' and 'int'"
# certainty = "sure"
# ///
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 64

    def __getitem__(self, index):
        pixel = "128" if self.rank == 2 and index == 21 else 128
        return torch.full((3, 8, 8), pixel / 255)


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Images(dist.get_rank()), batch_size=8, num_workers=1)
    for images in loader:
        mean = images.mean()
        dist.all_reduce(mean)
        print("mean", mean.item() / dist.get_world_size(), flush=True)


if __name__ == "__main__":
    main()
