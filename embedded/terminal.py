"""Print to the terminal that started the demo. It may be gone, which must not prevent a clean stop."""

import contextlib
import sys


def say(text: str = "") -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, flush=True)


def complain(error: object) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(error, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return sys.stdin.isatty() and sys.stdout.isatty()
    return False
