"""Copy what ranks print to the replica's own output: `[rank:line number] text`.

In a pod that is the container's log. A control plane that an agent cannot reach reads it there, and the numbers show it
which lines it already has. docs/wire.md, section 5.
"""

from __future__ import annotations

import contextlib
import sys


def mirror(rank: int, text: bytes, first_line: int) -> None:
    """Print whole lines, each with its newline; `first_line` is the number of the first of them within its rank."""
    form = b"[%d:%%d] %%s\n" % rank
    numbered = map(form.__mod__, enumerate(text[:-1].split(b"\n"), first_line))  # no Python-level step per line
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.buffer.write(b"".join(numbered))
        sys.stdout.buffer.flush()
