"""One rank that writes numbered lines at a steady rate: `writer.py LINES_PER_SECOND SECONDS`. Says how late it became."""

import os
import random
import sys
import time

BURST_SECONDS = 0.02


def main(rate: int, seconds: float) -> None:
    rank = int(os.environ["RANK"])
    chance = random.Random(rank)
    tails = [
        b" loss %.6f lr %.3e grad_norm %.4f tokens/s %.1f\n"
        % (chance.random() * 3, chance.random() * 1e-3, chance.random(), chance.random() * 1e5)
        for _ in range(997)
    ]
    head = b"rank %d line " % rank
    began, written, total = time.monotonic(), 0, int(rate * seconds)
    while written < total:
        due = min(total, int((time.monotonic() - began + BURST_SECONDS) * rate))
        if due > written:
            _write(b"".join([head + b"%d" % number + tails[number % 997] for number in range(written, due)]))
            written = due
        time.sleep(BURST_SECONDS)
    _write(head + b"end after %.3f\n" % (time.monotonic() - began))


def _write(text: bytes) -> None:
    while text:
        text = text[os.write(1, text) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
