"""Fits a line to noisy points on all ranks, with Python alone: each rank has its own points, and gradients are averaged over sockets.

    muster submit --framework plain --nodes 4 -- python plain_line.py

Needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which Muster sets. Goes on from its checkpoint after a restart.
"""

import argparse
import json
import os
import random
import socket
import time
from pathlib import Path
from typing import TextIO

try:
    import muster
except ImportError:  # without Muster: the same training, without reports
    muster = None

SLOPE, OFFSET = 3.0, -1.0  # what the points were made with
POINTS = 500  # of each rank
CONNECT_SECONDS = 60.0  # rank 0 may be the last one to come up


def main() -> None:
    options = arguments()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(f"rank {rank} of {size} on {socket.gethostname()}", flush=True)
    ranks = Ranks(rank, size)
    points = make_points(seed=rank)
    # All ranks go on from what rank 0 has read: the others send nothing to a sum.
    step, slope, offset = ranks.total(load() if rank == 0 else [0.0, 0.0, 0.0])
    while step < options.steps:
        loss, by_slope, by_offset = (value / size for value in ranks.total(gradient(points, slope, offset)))
        slope, offset, step = slope - options.lr * by_slope, offset - options.lr * by_offset, step + 1
        log_step(int(step), loss, options.print_every)
        if rank == 0 and step % options.save_every == 0:
            save([step, slope, offset])
        time.sleep(options.step_delay)
    if rank == 0:
        print(f"slope {slope:.2f} offset {offset:.2f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--print-every", type=int, default=20, help="steps between lines of log")
    parser.add_argument("--step-delay", type=float, default=0.05, help="seconds to wait after each step, for demos")
    return parser.parse_args()


class Ranks:
    """Sums over all ranks: each sends its numbers to rank 0, which answers with their sums."""

    def __init__(self, rank: int, size: int) -> None:
        self.files = []  # of rank 0 one for each other rank, of those one to rank 0
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            with socket.create_server(address) as server:
                self.files = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
        else:
            self.files = [connect(address).makefile("rw")]
        self.is_first = rank == 0

    def total(self, numbers: list[float]) -> list[float]:
        if not self.is_first:
            send(self.files[0], numbers)
            return receive(self.files[0])
        everyone = [numbers, *map(receive, self.files)]
        sums = [sum(column) for column in zip(*everyone)]  # noqa: B905 - `strict` is newer than Python 3.9
        for file in self.files:
            send(file, sums)
        return sums


def send(file: TextIO, numbers: list[float]) -> None:
    print(json.dumps(numbers), file=file, flush=True)


def receive(file: TextIO) -> list[float]:
    line = file.readline()
    if not line:
        raise ConnectionError("another rank has left")
    return json.loads(line)


def connect(address: tuple[str, int]) -> socket.socket:
    """Connects once rank 0 listens and its name is known."""
    give_up = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def make_points(seed: int) -> list[tuple[float, float]]:
    generator = random.Random(seed)
    found = [generator.uniform(-1, 1) for _ in range(POINTS)]
    return [(x, SLOPE * x + OFFSET + generator.gauss(0, 0.1)) for x in found]


def gradient(points: list[tuple[float, float]], slope: float, offset: float) -> list[float]:
    """The mean squared error on this rank's points, and its derivatives by slope and offset."""
    errors = [(slope * x + offset - y, x) for x, y in points]
    count = len(points)
    return [
        sum(error * error for error, _ in errors) / count,
        sum(2 * error * x for error, x in errors) / count,
        sum(2 * error for error, _ in errors) / count,
    ]


def log_step(step: int, loss: float, print_every: int) -> None:
    if muster:
        muster.report(step=step, loss=loss)
    if step % print_every == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)


def checkpoint() -> Path:
    return Path(muster.checkpoints() if muster else os.environ.get("MUSTER_CHECKPOINTS", "checkpoints")) / "line.json"


def save(numbers: list[float]) -> None:
    """Writes beside and renames: a checkpoint is there whole or not at all."""
    file = checkpoint()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(numbers))
    unfinished.replace(file)


def load() -> list[float]:
    """The newest checkpoint: step, slope and offset; zeros where there is none."""
    if not checkpoint().exists():
        return [0.0, 0.0, 0.0]
    numbers = json.loads(checkpoint().read_text())
    print(f"going on from step {numbers[0]:.0f}", flush=True)
    return numbers


if __name__ == "__main__":
    main()
