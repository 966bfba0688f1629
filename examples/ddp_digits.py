"""Trains a small network on scikit-learn's handwritten digits with DistributedDataParallel.

    torchrun --nproc-per-node 4 ddp_digits.py          by hand
    muster submit torchrun ddp_digits.py               on Muster, which shows every rank, its loss and its log

Runs on CPUs (gloo) and on GPUs (nccl). Saves checkpoints and goes on from the newest one after a restart.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    import muster
except ImportError:  # without Muster: the same training, without reports
    muster = None

CHECKPOINTS_KEPT = 2
STOPPED = 143  # 128 + SIGTERM: not finished, start me again


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)  # several ranks share this machine's cores
    torch.manual_seed(options.seed)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = choose_device()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {device}", flush=True)

    training, test = digits()
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    step = resume(model, optimizer, device)
    is_finished = train(model, optimizer, training, test, device, step, options)
    if is_finished:
        accuracy = measure(model, test, device)
        if dist.get_rank() == 0:
            print(f"test accuracy {accuracy:.2%}", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is saved; Python would die of a second one on its way out
    dist.destroy_process_group()
    sys.exit(0 if is_finished else STOPPED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--print-every", type=int, default=20, help="steps between lines of log")
    parser.add_argument("--min-seconds", type=float, default=0, help="go on beyond the epochs until then")
    parser.add_argument("--step-delay", type=float, default=0, help="seconds to wait after each step, for demos")
    return parser.parse_args()


def choose_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels, 0..1. Every fifth is for the test, the same ones in every run."""
    content = load_digits()
    images = torch.tensor(content.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(content.target)
    is_test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~is_test], labels[~is_test]), TensorDataset(images[is_test], labels[is_test])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(model, optimizer, training, test, device, step, options) -> bool:
    """Trains from `step` on. Returns False when somebody asked to stop before the end."""
    stop = StopRequest()
    sampler = DistributedSampler(training, seed=options.seed, drop_last=True)
    batches = DataLoader(training, options.batch_size, sampler=sampler, drop_last=True)
    began, epoch = time.monotonic(), step // len(batches)
    while any_rank(epoch < options.epochs or time.monotonic() - began < options.min_seconds, device):
        sampler.set_epoch(epoch)  # another order each time, the same after a restart
        for number, (images, labels) in enumerate(batches):
            if number < step - epoch * len(batches):
                continue  # this epoch's beginning was trained before the restart
            loss = train_step(model, optimizer, images.to(device), labels.to(device))
            step += 1
            log_step(step, loss, options.print_every)
            time.sleep(options.step_delay)
            is_stopping = any_rank(stop.is_asked, device)  # all or none: a rank that leaves alone breaks the others
            if is_stopping or step % options.save_every == 0:
                save(model, optimizer, step)
            if is_stopping:
                return False
        epoch += 1
        if dist.get_rank() == 0 and muster:
            muster.report(step=step, accuracy=measure(model, test, device))
    save(model, optimizer, step)
    return True


def train_step(model, optimizer, images, labels) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()  # DDP averages the gradients of all ranks here
    optimizer.step()
    return loss.item()


def log_step(step: int, loss: float, print_every: int) -> None:
    if muster:
        muster.report(step=step, loss=loss)
    if step % print_every == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)


@torch.no_grad()
def measure(model, test, device) -> float:
    """The share of test images that are read right, 0..1. No communication: every rank may call it alone."""
    images, labels = (tensor.to(device) for tensor in test.tensors)
    return (model.module(images).argmax(1) == labels).float().mean().item()


def any_rank(is_so: bool, device: torch.device) -> bool:
    """Whether it is so on at least one rank; the same answer everywhere."""
    answer = torch.tensor(float(is_so), device=device)
    dist.all_reduce(answer, op=dist.ReduceOp.MAX)
    return bool(answer.item())


class StopRequest:
    """SIGTERM: a person, a deadline or a more urgent job wants these machines. There is a grace period to save."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number, frame) -> None:
        self.is_asked = True


def checkpoints() -> Path:
    return Path(muster.checkpoints() if muster else os.environ.get("MUSTER_CHECKPOINTS", "checkpoints"))


def save(model, optimizer, step: int) -> None:
    """Rank 0 writes beside and renames: a checkpoint is there whole or not at all."""
    if dist.get_rank() != 0:
        return
    folder = checkpoints()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "unfinished"
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unfinished)
    unfinished.replace(folder / f"step-{step:08}.pt")
    for old in sorted(folder.glob("step-*.pt"))[:-CHECKPOINTS_KEPT]:
        old.unlink()


def resume(model, optimizer, device) -> int:
    """Loads the newest checkpoint that rank 0 sees, on every rank. Returns its step, 0 where there is none."""
    newest = [max(checkpoints().glob("step-*.pt"), default=None) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(newest)
    if newest[0] is None:
        return 0
    saved = torch.load(newest[0], map_location=device, weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    if dist.get_rank() == 0:
        print(f"going on from {newest[0].name}", flush=True)
    return saved["step"]


if __name__ == "__main__":
    main()
