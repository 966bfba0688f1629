# /// label
# kind = "user_code"
# rank = 3
# matches = "CalledProcessError: Command .* returned non-zero exit status 1|ZeroDivisionError"
# ///
import os
import subprocess
import sys
import time

PREPROCESS = "import sys; shards = int(sys.argv[1]); print('per shard', 1000 // shards)"

rank = int(os.environ["RANK"])
command = [sys.executable, "-c", PREPROCESS, "0" if rank == 3 else "8"]
subprocess.run(command, check=True)
print("preprocessed", flush=True)
time.sleep(600)
