"""Was this rank's end its own fault, or did it only lose the others? Read from the last lines it wrote. Pure.

The root of the last chain of tracebacks decides: a rank that raised ValueError and then lost its connections while
it tidied up is to blame; one that wrapped a lost connection in an error of its own is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Sequence, Tuple

TAIL_LINES = 400  # kept per stream; a traceback of Python is seldom longer than 100
TAIL_LINE_BYTES = 2000
ABORT = 6  # SIGABRT: C++ ended the process, and says why after any traceback
# gloo's threads may abort a process that is ending by an exception of its own: then the exception is the cause. An
# older one was survived.
ABORT_SECONDS = 5.0

Line = Tuple[float, bytes]  # when it was read, what it said

# What gloo, NCCL and TCPStore say of a peer that went away (torch 1.13 to 2.15).
_CONNECTION = re.compile(
    rb"Connection closed by (remote )?peer|Connection reset by (remote )?peer|Connection refused|Broken pipe"
    rb"|remote process exited|ncclRemoteError|ncclSystemError|NCCL communicator was aborted|NCCL timeout"
    rb"|Socket ?Timeout|socketPollConnect|socketProgress|Socket recv failed|Connection was likely closed"
    rb"|Watchdog caught collective operation timeout|collective operation timeout|Timed out waiting \d+ ?ms for"
    rb"|Application timeout caused pair closure|Gloo connectFullMesh failed|failed to recv, got 0 bytes"
    rb"|DistNetworkError|DistStoreError|Connection timed out|No route to host|recvValue failed|sendBytes failed"
    rb"|ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|connect\(\) timed out",
    re.IGNORECASE,
)
_TRACEBACK = b"Traceback (most recent call last):"
_LINKS = (b"During handling of the above exception", b"The above exception was the direct cause")
# These tracebacks do not end a process.
_HARMLESS = re.compile(rb"Exception (in thread|ignored in|in callback)")
_PREFIX = re.compile(rb"^\[rank\d+\]: ?")  # torch's excepthook puts it before every line
# Lines of C++ (torch's log, an abort) and of Python's own end are no part of the message before them.
_FOREIGN = re.compile(rb"^\[?[WIEF]\d{4} |^\[[WIEF]\d* |^terminate called|^Fatal Python error|^Exception ")
_MESSAGE_LINES = 12  # NCCL's errors explain themselves in the lines below
_LAST_LINES = 40  # read where there is no traceback


@dataclass(frozen=True)
class Blame:
    """`error_at` in seconds since the epoch, None where no traceback was written."""

    error_at: float | None
    is_connection_error: bool


def blame(stderr: Sequence[Line], *, stdout: Sequence[Line] = (), signal: int | None = None) -> Blame:
    """Judges a rank that failed. `signal` is what ended it, if one did."""
    tail = [(at, _PREFIX.sub(b"", line)) for at, line in stderr]
    begin = _root(tail)
    if begin is None and _root(stdout) is not None:  # some print their tracebacks
        tail, begin = list(stdout), _root(stdout)
    if begin is None or (signal == ABORT and tail[-1][0] - tail[begin][0] > ABORT_SECONDS):
        said = [line for _, line in tail[-_LAST_LINES:]]
    else:
        said = _message([line for _, line in tail[begin + 1 :]])
    is_connection_error = any(_CONNECTION.search(line) for line in said)
    return Blame(None if begin is None else tail[begin][0], is_connection_error)


def _root(tail: Sequence[Line]) -> int | None:
    """Index of the line that begins the last chain of tracebacks; those that end no process only where alone."""
    begins = [at for at, (_, line) in enumerate(tail) if _TRACEBACK in line]
    fatal = [at for at in begins if not (at and _HARMLESS.search(tail[at - 1][1]))] or begins
    if not fatal:
        return None
    root = fatal.pop()
    while fatal and _is_linked(tail, first=fatal[-1], second=root):
        root = fatal.pop()
    return root


def _is_linked(tail: Sequence[Line], *, first: int, second: int) -> bool:
    return any(line.startswith(_LINKS) for _, line in tail[max(first, second - 4) : second])


def _message(lines: Sequence[bytes]) -> list[bytes]:
    """The exception's own words: what follows the frames, which are indented."""
    begin = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith(b" ")), len(lines))
    said: list[bytes] = []
    for line in lines[begin : begin + _MESSAGE_LINES]:
        if line.startswith(_LINKS) or _TRACEBACK in line or _FOREIGN.match(line):
            break
        said.append(line)
    return said
