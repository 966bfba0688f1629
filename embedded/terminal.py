"""Speaking to whoever started the demo. The terminal may be gone: that must not keep it from stopping well."""

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
