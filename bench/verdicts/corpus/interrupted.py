# /// label
# kind = "signal"
# rank = 2
# matches = "KeyboardInterrupt|SIGINT"
# ///
import os
import signal
import time

rank = int(os.environ["RANK"])
for step in range(100_000):
    time.sleep(0.02)
    if (rank, step) == (2, 60):
        os.kill(os.getpid(), signal.SIGINT)
