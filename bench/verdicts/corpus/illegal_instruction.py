# /// label
# kind = "signal"
# rank = 3
# headline = "SIGILL"
# ///
import os
import signal
import time

rank = int(os.environ["RANK"])
print("loading kernels built for avx512", flush=True)
time.sleep(1 if rank == 3 else 600)
os.kill(os.getpid(), signal.SIGILL)
