# /// label
# kind = "data"
# rank = 0
# headline = "EOFError: Compressed file ended before the end-of-stream marker was reached"
# certainty = "sure"
# ///
import gzip
import os
import tempfile
import time

rank = int(os.environ["RANK"])
path = os.path.join(tempfile.mkdtemp(), "c4-train.00017-of-01024.jsonl.gz")
packed = gzip.compress(b'{"text": "hello"}\n' * 20_000)
with open(path, "wb") as file:
    file.write(packed if rank else packed[:-200])
with gzip.open(path, "rt") as lines:
    count = sum(1 for _ in lines)
print("lines", count, flush=True)
time.sleep(600)
