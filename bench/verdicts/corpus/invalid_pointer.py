# /// label
# kind = "signal"
# rank = 3
# matches = "SIGABRT|free\\(\\): invalid (pointer|size)"
# ///
"""A native library frees what it does not own; the C library says one line and aborts."""

import ctypes
import os
import resource
import time

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
rank = int(os.environ["RANK"])
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
batch = (ctypes.c_char * 4096)()

for step in range(600):
    print(f"rank {rank}: step {step}, loss {3 / (step + 1):.3f}", flush=True)
    if (rank, step) == (3, 2):
        libc.free(ctypes.addressof(batch) + 8)
    time.sleep(1)
