# /// label
# kind = "user_code"
# rank = 0
# headline = "TypeError: '<' not supported between instances of 'float' and 'NoneType'"
# ///
"""As loguru's `@logger.catch(onerror=lambda _: sys.exit(1))` shows a failure: a log record, arrows, values under the lines."""

import os
import sys
import threading
import time
import traceback

RANK = int(os.environ["RANK"])


def say(level, function, line, message):
    stamp = time.strftime("%Y-%m-%d %H:%M:%S") + ".417"
    sys.stderr.write(f"{stamp} | {level: <8} | __main__:{function}:{line} - {message}\n")
    sys.stderr.flush()


def catch(error):
    frames = traceback.extract_tb(error.__traceback__)
    lines = ["Traceback (most recent call last):", ""]
    for number, frame in enumerate(frames):
        mark = "> " if number == 0 else "  "
        lines += [f'{mark}File "{frame.filename}", line {frame.lineno}, in {frame.name}', f"    {frame.line}"]
        if number == len(frames) - 1:
            lines += ["       │      └ None", "       └ 0.4375"]
        else:
            lines += [f"    └ <function {frames[number + 1].name} at 0x7f3a5c1d2e80>"]
        lines += [""]
    lines += traceback.format_exception_only(error)
    who = f"process 'MainProcess' ({os.getpid()}), thread 'MainThread' ({threading.get_ident()})"
    first = frames[0]
    said = f"An error has been caught in function '{first.name}', {who}:\n" + "\n".join(lines)
    say("ERROR", first.name, first.lineno, said)


def is_better(loss, best):
    return loss < best


def evaluate(epoch):
    loss, best = 0.4375, None
    if is_better(loss, best):
        say("SUCCESS", "evaluate", 47, f"epoch {epoch}: new best {loss}")


def main():
    for epoch in range(600):
        say("INFO", "main", 52, f"epoch {epoch} on rank {RANK}")
        time.sleep(0.5)
        if RANK == 0 and epoch == 4:
            evaluate(epoch)
        if epoch > 8:
            time.sleep(60)


try:
    main()
except Exception as error:
    catch(error)
    sys.exit(1)
