# /// label
# kind = "user_code"
# rank = 1
# headline = "ValueError: too many values to unpack (expected 2)"
# ///
"""Logs one JSON object a line, as log collectors want it; its failure is one as well."""

import json
import os
import sys
import time
import traceback

RANK = int(os.environ["RANK"])


def emit(level, event, **fields):
    record = {"ts": time.time(), "level": level, "event": event, "rank": RANK, **fields}
    sys.stderr.write(json.dumps(record) + "\n")
    sys.stderr.flush()


def step(number):
    left, right = ("a", "b", "c") if (RANK, number) == (1, 20) else ("a", "b")
    emit("info", "step", number=number, pair=left + right)
    time.sleep(0.1)


def run():
    number = 0
    while True:
        number += 1
        step(number)


try:
    run()
except Exception as error:
    emit(
        "critical", "unhandled exception", exc_type=type(error).__name__, exc_message=str(error),
        exception="".join(traceback.format_exception(error)),
    )  # fmt: skip
    raise SystemExit(70) from None
