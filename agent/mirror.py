"""What ranks print, once more in the replica's own output: `[rank:line number] text`.

In a pod that is the container's log. A control plane that an agent cannot reach reads it there, and the numbers say which
lines it has already. docs/wire.md, section 5.
"""

from __future__ import annotations

import contextlib
import sys


def mirror(rank: int, text: bytes, first_line: int) -> None:
    """`text` has whole lines, each with its end; `first_line` is the number of the first of them within its rank."""
    form = b"[%d:%%d] %%s\n" % rank
    numbered = map(form.__mod__, enumerate(text[:-1].split(b"\n"), first_line))  # no step of Python's own for each line
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.buffer.write(b"".join(numbered))
        sys.stdout.buffer.flush()
