# /// label
# kind = "data"
# rank = 2
# headline = "BadGzipFile: Not a gzipped file (b'<!')"
# certainty = "sure"
# ///
import gzip
import os
import tempfile
import time

rank = int(os.environ["RANK"])
path = os.path.join(tempfile.mkdtemp(), "train-images-idx3-ubyte.gz")
with open(path, "wb") as file:  # what a download gets from a portal that wants a login
    file.write(b"<!DOCTYPE html><html><title>Sign in</title>" if rank == 2 else gzip.compress(bytes(784)))
with gzip.open(path) as images:
    pixels = images.read()
print("read", len(pixels), "bytes", flush=True)
time.sleep(600)
