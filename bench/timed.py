"""Runs a training script unchanged and notes when it began and ended and what CPU it took, one file per rank.

Used on both sides of a comparison, so that both pay for it alike:  timed.py SCRIPT ARGUMENTS...
"""

import json
import os
import resource
import runpy
import sys
import time

began = time.time()
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    path = os.path.join(os.environ["TIMED_FOLDER"], f"{os.environ['RANK']}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"began": began, "ended": time.time(), "cpu": cpu}, file)
