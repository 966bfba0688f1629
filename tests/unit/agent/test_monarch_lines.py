"""What a process below a Monarch replica prints: whole lines, since several processes write into one pipe."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("is_set_up", "writes"), [(True, [b"one line\n"]), (False, [b"one line", b"\n"])])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_line_is_one_write(is_set_up, writes, stream):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps the bounds of each write
    code = f"import sys; print('one line', file=sys.{stream})"
    setup = "from agent.frameworks import monarch_hook; monarch_hook.setup(); " if is_set_up else ""
    with ours, theirs:
        subprocess.run(
            [sys.executable, "-c", setup + code], cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            check=True, **{stream: theirs.fileno()},
        )  # fmt: skip
        theirs.close()
        found = []
        while packet := ours.recv(100):
            found.append(packet)
    assert found == writes
