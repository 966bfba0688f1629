# /// label
# kind = "user_code"
# rank = [0, 1, 2, 3]
# headline = "Detected mismatch between collectives on ranks"
# ///
"""With TORCH_DISTRIBUTED_DEBUG=DETAIL, torch compares the calls: one rank reduces a metric more than the others do."""

import os

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"

import torch
import torch.distributed as dist


def report(metrics):
    together = torch.tensor(list(metrics.values()))
    dist.all_reduce(together)
    return together / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    for step in range(20):
        metrics = {"loss": 1 / (step + 1), "accuracy": step / 20}
        if dist.get_rank() == 1 and step == 6:
            metrics["overflows"] = 1.0  # only there if there was one
        print(step, report(metrics).tolist(), flush=True)


if __name__ == "__main__":
    main()
