# /// label
# kind = "signal"
# rank = 0
# headline = "SIGBUS"
# ///
import mmap
import os
import tempfile
import time

if int(os.environ["RANK"]) > 0:
    time.sleep(600)
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 20)
    tokens = mmap.mmap(file.fileno(), 1 << 20)
    print("mapped", len(tokens), flush=True)
    file.truncate(0)  # somebody builds the file again while it is read
    print(tokens[4096])
