# /// label
# kind = "deadline"
# headline = "deadline"
# without = ["KeyboardInterrupt", "SystemExit"]
# certainty = "sure"
#
# [job]
# deadline_seconds = 25
# ///
import signal
import time

import torch
import torch.distributed as dist


def stop(number, frame):
    raise KeyboardInterrupt("asked to stop")


signal.signal(signal.SIGTERM, stop)
dist.init_process_group("gloo")
for step in range(1_000_000):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.1)
