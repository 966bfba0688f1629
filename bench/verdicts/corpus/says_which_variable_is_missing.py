# /// label
# kind = "config"
# rank = 0
# headline = "WANDB_API_KEY is not set"
# ///
import os
import sys
import time

if int(os.environ["RANK"]) == 0 and not os.environ.get("WANDB_API_KEY"):
    print("error: WANDB_API_KEY is not set; run `wandb login` or set it in the job's environment", file=sys.stderr)
    sys.exit(1)
time.sleep(600)
