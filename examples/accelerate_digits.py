"""Trains a small network on scikit-learn's handwritten digits with Hugging Face Accelerate.

    torchrun --nproc-per-node 2 accelerate_digits.py          by hand
    muster submit torchrun accelerate_digits.py               on Muster, which shows every rank, its loss and its log

Runs on CPUs and on GPUs. Saves when it is asked to stop, and goes on from the newest checkpoint after a restart.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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
    # Ranks and addresses are in the environment that torchrun sets. Without a GPU, Accelerate only joins them on request.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    print(f"rank {accelerator.process_index} of {accelerator.num_processes} on {accelerator.device}", flush=True)

    training, test = digits()
    batches = DataLoader(training, options.batch_size, shuffle=True, drop_last=True)
    model = network()
    model, optimizer, batches = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=options.lr), batches)
    is_finished = train(accelerator, model, optimizer, batches, resume(accelerator), options)
    if is_finished and accelerator.is_main_process:
        accuracy = measure(accelerator.unwrap_model(model), test, accelerator.device)
        print(f"test accuracy {accuracy:.2%}", flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # all is saved; Python would die of a second one on its way out
    accelerator.end_training()
    sys.exit(0 if is_finished else STOPPED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=20, help="steps between lines of log")
    parser.add_argument("--step-delay", type=float, default=0, help="seconds to wait after each step, for demos")
    return parser.parse_args()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels, 0..1. Every fifth is for the test, the same ones in every run."""
    content = load_digits()
    images = torch.tensor(content.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(content.target)
    is_test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~is_test], labels[~is_test]), TensorDataset(images[is_test], labels[is_test])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(accelerator, model, optimizer, batches, step, options) -> bool:
    """Trains from `step` on. Returns False when somebody asked to stop before the end."""
    stop = StopRequest()
    for epoch in range(step // len(batches), options.epochs):
        batches.set_epoch(epoch)  # another order each time, the same after a restart
        trained = step - epoch * len(batches)  # this epoch's beginning, before a restart
        for images, labels in accelerator.skip_first_batches(batches, trained) if trained else batches:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)  # averages the gradients of all ranks
            optimizer.step()
            step += 1
            log_step(step, loss.item(), options.print_every)
            time.sleep(options.step_delay)
            if any_rank(accelerator, stop.is_asked):  # all or none: a rank that leaves alone breaks the others
                save(accelerator, step)
                return False
        save(accelerator, step)
    return True


def any_rank(accelerator: Accelerator, is_so: bool) -> bool:
    """Whether it is so on at least one rank; the same answer everywhere."""
    answer = torch.tensor(float(is_so), device=accelerator.device)
    return bool(accelerator.reduce(answer, reduction="sum").item())


class StopRequest:
    """SIGTERM: a person, a deadline or a more urgent job wants these machines. There is a grace period to save."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number, frame) -> None:
        self.is_asked = True


def log_step(step: int, loss: float, print_every: int) -> None:
    if muster:
        muster.report(step=step, loss=loss)
    if step % print_every == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)


@torch.no_grad()
def measure(model, test, device) -> float:
    """The share of test images that are read right, 0..1."""
    images, labels = (tensor.to(device) for tensor in test.tensors)
    return (model(images).argmax(1) == labels).float().mean().item()


def checkpoints() -> Path:
    return Path(muster.checkpoints() if muster else os.environ.get("MUSTER_CHECKPOINTS", "checkpoints"))


def save(accelerator: Accelerator, step: int) -> None:
    """All ranks write beside, then one renames: a checkpoint is there whole or not at all."""
    unfinished = checkpoints() / "unfinished"
    accelerator.save_state(str(unfinished))  # each rank writes the state of its random numbers
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return
    there = checkpoints() / f"step-{step:08}"
    if there.exists():  # asked to stop right after an epoch's end
        shutil.rmtree(unfinished)
    else:
        unfinished.rename(there)
    for old in sorted(checkpoints().glob("step-*"))[:-CHECKPOINTS_KEPT]:
        shutil.rmtree(old)


def resume(accelerator: Accelerator) -> int:
    """Loads the newest checkpoint on every rank. Returns its step, 0 where there is none."""
    newest = max(checkpoints().glob("step-*"), default=None)
    if newest is None:
        return 0
    accelerator.load_state(str(newest))
    if accelerator.is_main_process:
        print(f"going on from {newest.name}", flush=True)
    return int(newest.name.split("-")[1])


if __name__ == "__main__":
    main()
