# /// label
# kind = "unknown"
# rank = 3
# headline = "exited with code 255"
# ///
import os
import sys
import time

print("epoch 1: loss 2.30", flush=True)
time.sleep(1 if os.environ["RANK"] == "3" else 600)
sys.exit(-1)
