# /// label
# kind = "user_code"
# rank = 2
# headline = "TimeoutError: the feature service gave no batch within 2 s"
# certainty = "sure"
# ///
import queue
import time

import torch
import torch.distributed as dist


class FeatureClient:
    def __init__(self, rank):
        self.rank, self.answers = rank, queue.Queue()

    def batch(self, step):
        if (self.rank, step) != (2, 3):
            self.answers.put(step)
        try:
            return self.answers.get(timeout=2)
        except queue.Empty:
            raise TimeoutError("the feature service gave no batch within 2 s") from None


dist.init_process_group("gloo")
client = FeatureClient(dist.get_rank())
for step in range(20):
    dist.all_reduce(torch.tensor(float(client.batch(step))))
    time.sleep(0.05)
