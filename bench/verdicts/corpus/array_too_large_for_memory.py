# /// label
# kind = "host_memory"
# rank = 1
# matches = "MemoryError: Unable to allocate"
# certainty = "sure"
# ///
import os
import resource
import time

import numpy

rank = int(os.environ["RANK"])
if rank == 1:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
features = numpy.zeros((2_000_000, 1024) if rank == 1 else (2, 1024))
print("features", features.shape, flush=True)
time.sleep(600)
