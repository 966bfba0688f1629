# /// label
# kind = "user_code"
# rank = 3
# headline = "ValueError: checkpoint of epoch 7 has no optimizer state"
# without = ["heartbeat"]
# certainty = "sure"
# ///
import os
import time

rank = int(os.environ["RANK"])
began = time.time()
while True:
    time.sleep(0.05)
    if rank == 3 and time.time() - began > 2:
        raise ValueError("checkpoint of epoch 7 has no optimizer state")
    if rank == 0 and time.time() - began > 60:
        raise RuntimeError("heartbeat of rank 3 is missing")
