# /// label
# kind = "user_code"
# rank = 1
# headline = "got an unexpected keyword argument 'max_lenght'"
# ///
"""The thread that makes the batches dies, and its rank waits for the next one for ever; only the others come to an end."""

import queue
import threading
from datetime import timedelta

import torch
import torch.distributed as dist


class Tokenizer:
    def encode(self, text, max_length=None):
        return [ord(letter) for letter in text[:max_length]]


def prefetch(batches, rank):
    tokenizer = Tokenizer()
    for number in range(1000):
        if rank == 1 and number == 10:  # the first long text
            numbers = tokenizer.encode("long " * 1000, max_lenght=16)
        else:
            numbers = tokenizer.encode("a short text of it", max_length=16)
        batches.put(torch.tensor(numbers, dtype=torch.float32))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    batches = queue.Queue(maxsize=2)
    threading.Thread(target=prefetch, args=(batches, dist.get_rank()), name="prefetch", daemon=True).start()
    for step in range(1000):
        batch = batches.get()
        dist.all_reduce(batch)
        print(f"step {step}: {batch.sum().item():.1f}", flush=True)


if __name__ == "__main__":
    main()
