# /// label
# kind = "host_memory"
# rank = 3
# headline = "MemoryError"
# certainty = "sure"
# ///
import os
import resource
import time

rank = int(os.environ["RANK"])
if rank < 3:
    time.sleep(600)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
cache = []
while True:
    cache.append(bytearray(64 << 20))
