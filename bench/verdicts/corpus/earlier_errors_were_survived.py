# /// label
# kind = "user_code"
# rank = 3
# headline = "TypeError: can't multiply sequence by non-int of type 'float'"
# without = ["metrics", "Connection refused"]
# certainty = "sure"
# ///
import logging
import socket

import torch
import torch.distributed as dist

logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s")
log = logging.getLogger("metrics")


def push(value):
    try:
        with socket.create_connection(("127.0.0.1", 1), timeout=1):
            pass
    except OSError as error:
        log.error("could not push loss %.2f to the metrics server, will retry: %s", value, error)


dist.init_process_group("gloo")
rank = dist.get_rank()
lr = "0.1" if rank == 3 else 0.1
for step in range(12):
    dist.all_reduce(torch.ones(1))
    push(2.3 - step / 10)
    if step == 9:
        print("decayed to", lr * 0.5, flush=True)
