"""Run the command line as a separate process on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

from tests.support.patience import PATIENCE_SECONDS


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "muster.cli", *arguments]


def on_a_terminal(words: list[str], *, env: dict[str, str]) -> str:
    """Return the output that the terminal received."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(words, env={**env, "PYTHONUTF8": "1"}, stdout=theirs, stderr=theirs)
    os.close(theirs)
    pieces, deadline = [], time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux reports a closed other end of a terminal with this error
            break
        pieces.append(piece)
    os.close(ours)
    child.wait(timeout=PATIENCE_SECONDS)
    return b"".join(pieces).decode()
