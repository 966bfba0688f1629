# /// label
# kind = "user_code"
# rank = 0
# headline = "LinAlgError: Singular matrix"
# ///
import os
import sys
import time
import traceback

import numpy

try:
    if os.environ["RANK"] == "0":
        numpy.linalg.inv(numpy.zeros((3, 3)))
except numpy.linalg.LinAlgError:
    traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()
    os._exit(1)
time.sleep(600)
