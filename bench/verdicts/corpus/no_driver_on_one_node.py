# /// label
# kind = ["hardware", "config"]
# rank = [2, 3]
# headline = "Found no NVIDIA driver on your system."
# ///
"""The second node was installed without a driver: both of its ranks fail at their first use of a GPU."""

import os
import time

rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])


def lazy_init():
    if rank >= 2:
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from "
            "http://www.nvidia.com/Download/index.aspx"
        )


def set_device(device):
    lazy_init()
    print(f"rank {rank} uses cuda:{device}", flush=True)


time.sleep(1)
set_device(local_rank)
time.sleep(600)
