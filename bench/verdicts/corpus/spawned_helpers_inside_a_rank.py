# /// label
# kind = "user_code"
# rank = 3
# headline = "ZeroDivisionError: float division by zero"
# ///
import os
import time

import torch.multiprocessing as mp


def normalise(index, scale):
    time.sleep(0.2 * index)
    print("helper", index, "scale", 1.0 / scale[index], flush=True)
    time.sleep(5 if scale[-1] else 0)


def main():
    scale = [2.0, 0.0] if os.environ["RANK"] == "3" else [2.0, 4.0]
    mp.start_processes(normalise, args=(scale,), nprocs=2, start_method="fork")
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
