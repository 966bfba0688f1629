# /// label
# kind = "unknown"
# rank = 0
# headline = "exited with code 1"
# ///
import os
import sys
import time

if os.environ["RANK"] == "0":
    sys.exit(1)
time.sleep(600)
