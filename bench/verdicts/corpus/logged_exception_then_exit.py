# /// label
# kind = "user_code"
# rank = 0
# headline = "RuntimeError: Trying to backward through the graph a second time"
# certainty = "sure"
# ///
import logging
import sys

import torch
import torch.distributed as dist

logging.basicConfig(format="%(asctime)s %(levelname)-8s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("trainer")


def train(rank):
    weight = torch.ones(4, requires_grad=True)
    for step in range(20):
        loss = weight.square().sum()
        loss.backward()
        if (rank, step) == (0, 6):
            loss.backward()
        dist.all_reduce(weight.grad)
        log.info("step %d", step)


dist.init_process_group("gloo")
try:
    train(dist.get_rank())
except Exception:
    log.exception("training failed")
    sys.exit(1)
