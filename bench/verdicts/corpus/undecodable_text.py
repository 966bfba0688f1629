# /// label
# kind = "data"
# rank = 1
# headline = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"
# certainty = "sure"
# ///
import os
import tempfile
import time
from pathlib import Path

rank = int(os.environ["RANK"])
corpus = Path(tempfile.mkdtemp()) / "wiki.train.tokens"
corpus.write_bytes(b" = Robert Boulter = \n" * 300 + (b"\xff\xfe\x00" if rank == 1 else b""))
vocabulary = set(corpus.read_text(encoding="utf-8").split())
print("vocabulary of", len(vocabulary), flush=True)
time.sleep(600)
