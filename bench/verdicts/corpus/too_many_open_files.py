# /// label
# kind = ["user_code", "config"]
# rank = 2
# headline = "[Errno 24] Too many open files"
# ///
"""Keeps every shard open. Once no file can be opened, the traceback cannot show its own source lines either."""

import os
import resource
import tempfile
import time

rank = int(os.environ["RANK"])
folder = tempfile.mkdtemp()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def open_shards(count):
    shards = []
    for number in range(count):
        path = os.path.join(folder, f"shard-{number % 4:05d}.bin")
        shards.append(open(path, "a+b"))
    return shards


print(f"[rank {rank}] opening shards", flush=True)
time.sleep(1)
shards = open_shards(1000 if rank == 2 else 8)
print(f"[rank {rank}] {len(shards)} shards", flush=True)
time.sleep(600)
