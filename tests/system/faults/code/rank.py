"""A rank without PyTorch: writes numbered lines and records its progress in the job's shared folder.

Each rank of each attempt creates `claims/<attempt>-<rank>`; a second process that tries is a doubled replica. The file
holds when the rank began, when it was last alive, and how many lines it has written. The rank ends after `--lines N`, or
when `finish` appears. With `--series` rank 0 reports more series than a job may have. A helper of a plain job is numbered
behind the workers, and is asked to end with them: it completes the line that it has claimed.
"""

import os
import signal
import sys
import time

attempt, shared = os.environ["MUSTER_ATTEMPT"], os.environ["MUSTER_SHARED"]
asked = []
if "HELPER_INDEX" in os.environ:
    rank = str(int(os.environ["WORLD_SIZE"]) + int(os.environ["HELPER_INDEX"]))
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
else:
    rank = os.environ["RANK"]
lines = int(sys.argv[sys.argv.index("--lines") + 1]) if "--lines" in sys.argv else 10**9
claims = os.path.join(shared, "claims")
os.makedirs(claims, exist_ok=True)
try:
    claim = os.open(os.path.join(claims, f"{attempt}-{rank}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
except FileExistsError:
    os.close(os.open(os.path.join(claims, f"doubled-{attempt}-{rank}-{os.getpid()}"), os.O_CREAT | os.O_WRONLY))
    sys.exit(9)
if "--series" in sys.argv and rank == "0":
    sys.path.append(os.environ["PYTHONPATH"].split(":")[-1])  # -E ignores it
    from muster import report
else:
    report = None


def report_too_much():
    for part in range(5 if report else 0):
        report(**{f"series {part}-{one}": 1.0 for one in range(50)})


report_too_much()
began, number = time.time(), 0
while number < lines and not asked and not os.path.exists(os.path.join(shared, "finish")):
    # The claim comes first: every line that is read must have been claimed.
    os.pwrite(claim, f"{began:.3f} {time.time():.3f} {number + 1:>12}\n".encode(), 0)
    print(f"line {number}", flush=True)
    number += 1
    if number % 20 == 0:
        report_too_much()
    time.sleep(0.05)
sys.exit(3 if "--fail" in sys.argv else 0)
