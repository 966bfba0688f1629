"""Decide whether a rank's failure was its own or it only lost its peers, from the last lines it wrote. Pure.

The root of the last chain of tracebacks decides: a rank that raised ValueError and then lost its connections while
cleaning up is to blame; one that wrapped a lost connection in an error of its own is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Sequence, Tuple

TAIL_LINES = 400  # kept of a rank's output; a Python traceback is seldom longer than 100
TAIL_LINE_BYTES = 2000
ABORT = 6  # SIGABRT: C++ ended the process, and prints the reason after any traceback
# gloo's threads may abort a process that is ending by an exception of its own: then the exception is the cause. An
# older exception was survived.
ABORT_SECONDS = 5.0

Line = Tuple[float, bytes]  # (when it was read, text)

# What gloo, NCCL and TCPStore print about a lost peer (torch 1.13 to 2.15).
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
# An error of the rank's own: it cannot listen, bind or resolve, whatever its peers do (torch 2.15, Python, NCCL, glibc).
_OWN = re.compile(
    rb"failed to (listen|bind)|EADDRINUSE|Address already in use|EADDRNOTAVAIL|Cannot assign requested address"
    rb"|Unable to find (interface|address) for|no socket interface found|Name or service not known"
    rb"|Temporary failure in name resolution|\bgaierror\b",
    re.IGNORECASE,
)
# torch's client of the store warns that it cannot resolve a name, and in the end reports only that it has timed out.
_UNRESOLVED = re.compile(rb"addresses of \((\S+, \d+)\) cannot be retrieved \(gai error: -[23] ")
_CONNECTS_TO = re.compile(rb"connect to [^(]{0,40}\((\S+, \d+)\)")
TRACEBACK = b"Traceback (most recent call last):"
_LINKS = (b"During handling of the above exception", b"The above exception was the direct cause")
# These tracebacks do not end a process.
_HARMLESS = re.compile(rb"Exception (in thread|ignored in|in callback)")
_IN_GROUP = re.compile(rb"\s*\|\s")
_PREFIX = re.compile(rb"^\[rank\d+\]: ?")  # torch's excepthook puts it before every line
# Lines of C++ (torch's log, an abort) and of Python's own end are no part of the message before them.
_FOREIGN = re.compile(rb"^\[?[WIEF]\d{4} |^\[[WIEF]\d* |^terminate called|^Fatal Python error|^Exception ")
_MESSAGE_LINES = 12  # NCCL's errors explain themselves in the lines below
_LAST_LINES = 40  # read where there is no traceback
_SENT_LINES = 300  # of a chain of tracebacks
_SENT_BYTES = 24_000
_SENT_LINE_BYTES = 1000


@dataclass(frozen=True)
class Blame:
    """`error_at` in seconds since the epoch, None where no traceback was written."""

    error_at: float | None
    is_connection_error: bool


def last_words(lines: Sequence[Line], *, ended_at: float, signal: int | None) -> Dict[str, str]:
    """Return what a failed rank printed last, for the control plane to judge: its output's last `lines`.

    That is its last chain of tracebacks, and the end of its output. For a rank killed by a signal an older traceback
    was survived, and is left out.
    """
    tail = [(at, _PREFIX.sub(b"", line)) for at, line in lines]
    begin = _root(tail)
    found: list[bytes] = []
    if begin is not None and (signal is None or ended_at - tail[begin][0] <= ABORT_SECONDS):
        first = begin - 1 if begin and _HARMLESS.search(tail[begin - 1][1]) else begin
        found = [line for _, line in lines[first : first + _SENT_LINES]]
    last = [line for _, line in lines[-_LAST_LINES:]]
    if (unresolved := _unresolved(lines, found or last)) and unresolved not in last:
        last = [unresolved, *last[1:]]
    return {
        "traceback": _text(found, _SENT_BYTES, is_end=False),
        "stderr": _text(last, _SENT_BYTES // 4),
    }


def _text(lines: Sequence[bytes], most: int, *, is_end: bool = True) -> str:
    """Join as many whole lines as fit, from the end or from the beginning."""
    text = b"\n".join(line[:_SENT_LINE_BYTES] for line in lines)
    if len(text) > most:
        text = text[-most:].partition(b"\n")[2] if is_end else text[:most].rpartition(b"\n")[0]
    return text.decode("utf-8", "replace")


def blame(lines: Sequence[Line], *, signal: int | None = None) -> Blame:
    """Judge a rank that failed, by its output's last lines. `signal`: the one that ended it, if any."""
    tail = [(at, _PREFIX.sub(b"", line)) for at, line in lines]
    begin = _root(tail)
    if begin is None or (signal == ABORT and tail[-1][0] - tail[begin][0] > ABORT_SECONDS):
        message = [line for _, line in tail[-_LAST_LINES:]]
    else:
        message = _message([line for _, line in tail[begin + 1 :]])
    is_own = any(_OWN.search(line) for line in message) or _unresolved(lines, message)
    is_connection_error = not is_own and any(_CONNECTION.search(line) for line in message)
    return Blame(None if begin is None else tail[begin][0], is_connection_error)


def _unresolved(lines: Sequence[Line], message: Sequence[bytes]) -> bytes | None:
    """Return the line that says that the address which the message names cannot be resolved; None if there is none."""
    wanted = {found[1] for line in message if (found := _CONNECTS_TO.search(line))}
    warnings = (
        line for _, line in reversed(lines) if wanted and (found := _UNRESOLVED.search(line)) and found[1] in wanted
    )
    return next(warnings, None)


def _root(tail: Sequence[Line]) -> int | None:
    """Return the index of the line that begins the last chain of tracebacks; harmless ones count only if alone."""
    begins = [at for at, (_, line) in enumerate(tail) if TRACEBACK in line]
    fatal = [at for at in begins if not (at and _HARMLESS.search(tail[at - 1][1]))] or begins
    if not fatal:
        return None
    root = fatal.pop()
    while fatal and _is_linked(tail, first=fatal[-1], second=root):
        root = fatal.pop()
    return root


def _is_linked(tail: Sequence[Line], *, first: int, second: int) -> bool:
    """Return whether the second traceback names the first as its cause, or lies within the frame of an ExceptionGroup."""
    if _IN_GROUP.match(tail[second][1]):
        return True
    return any(line.startswith(_LINKS) for _, line in tail[max(first, second - 4) : second])


def _message(lines: Sequence[bytes]) -> list[bytes]:
    """Return the exception's message: what follows the frames, which are indented."""
    begin = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith(b" ")), len(lines))
    message: list[bytes] = []
    for line in lines[begin : begin + _MESSAGE_LINES]:
        if line.startswith(_LINKS) or TRACEBACK in line or _FOREIGN.match(line):
            break
        message.append(line)
    return message
