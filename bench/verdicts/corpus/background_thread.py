# /// label
# kind = "user_code"
# rank = 1
# headline = "IndexError: pop from empty list"
# ///
import os
import threading
import time

rank = int(os.environ["RANK"])
waiting = list(range(40 if rank != 1 else 12))
is_alive = True


def prefetch():
    global is_alive
    try:
        while True:
            waiting.pop()
            time.sleep(0.05 if rank == 1 else 60)
    finally:
        is_alive = False


threading.Thread(target=prefetch, name="prefetch", daemon=True).start()
for step in range(100_000):
    if not is_alive:
        time.sleep(0.2)
        os._exit(1)
    time.sleep(0.02)
