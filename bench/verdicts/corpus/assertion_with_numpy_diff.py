# /// label
# kind = "user_code"
# rank = 1
# headline = "Not equal to tolerance rtol=1e-05, atol=0"
# ///
"""The message of this assertion begins with an empty line: what it says stands below its class."""

import os
import time

import numpy as np

rank = int(os.environ["RANK"])


def check_resumed(expected, found):
    np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg="optimizer state after resume differs")


print(f"rank {rank} resumes at step 4000", flush=True)
time.sleep(1)
momentum = np.linspace(-1, 1, 2000)
check_resumed(momentum, momentum * (1.02 if rank == 1 else 1))
time.sleep(600)
