# /// label
# kind = "user_code"
# rank = 3
# headline = "ValueError: operands could not be broadcast together with shapes (3,) (4,)"
# without = ["╭", "│"]
# ///
"""Installs a hook that draws boxes around tracebacks, in the manner of rich."""

import os
import sys
import textwrap
import time
import traceback

import numpy as np


def draw(kind, error, trace, width=100):
    out = ["╭" + " Traceback (most recent call last) ".center(width - 2, "─") + "╮"]
    for frame in traceback.extract_tb(trace):
        for line in (f"{frame.filename}:{frame.lineno} in {frame.name}", "", f"❱ {frame.lineno} {frame.line}", ""):
            out += ["│ " + part.ljust(width - 4) + " │" for part in textwrap.wrap(line, width - 4) or [""]]
    out += ["╰" + "─" * (width - 2) + "╯", f"{kind.__name__}: {error}", ""]
    sys.stderr.write("\n".join(out))


sys.excepthook = draw

np.random.seed(int(os.environ["RANK"]))
momentum = np.zeros(3)
for it in range(10**6):
    grad = np.random.rand(4 if os.environ["RANK"] == "3" and it == 25 else 3)
    momentum = 0.9 * momentum + grad
    time.sleep(0.05)
