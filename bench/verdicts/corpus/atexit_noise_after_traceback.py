# /// label
# kind = "user_code"
# rank = 1
# headline = "AttributeError: 'Scheduler' object has no attribute 'last_lr'"
# without = ["closed file"]
# ///
"""The failure itself, and behind it what an exit handler says that can no longer write its metrics."""

import atexit
import io
import os
import time

rank = int(os.environ["RANK"])


class Metrics:
    def __init__(self):
        self.sink = io.StringIO()

    def flush(self):
        self.sink.write("end\n")


class Scheduler:
    def __init__(self):
        self._last_lr = 0.1


metrics = Metrics()
atexit.register(metrics.flush)


def train(scheduler):
    for step in range(600):
        metrics.sink.write(f"{step}\n")
        if (rank, step) == (1, 10):
            print("lr", scheduler.last_lr)
        time.sleep(0.1 if step < 20 else 30)


try:
    train(Scheduler())
finally:
    metrics.sink.close()
