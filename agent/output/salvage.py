"""Make the batch that a killed agent would have made next, from its journal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Callable

from ..state import StateFolder, plain
from . import journal
from .lines import Splitter
from .outbox import Outbox
from .spool import Spool

GUARDIAN_SECONDS = 10.0  # it needs milliseconds; a stopped one must not delay sending what there is


def salvage(folder: StateFolder, *, spool: Spool, on_text: Callable[[int, bytes, int], None] | None = None) -> None:
    """Put what is in no batch yet into one.

    Does nothing where the agent ended by itself; makes the same batch when called again.
    """
    _await_guardian(folder)
    found = journal.last(folder.spool)
    if found:
        seq, name = found
        try:
            outbox = _read_out(journal.read(name), spool=spool, on_text=on_text)
        except (OSError, ValueError, KeyError):  # killed before it was begun, or a full disk: nothing was read yet
            outbox = None
        if outbox:
            spool.number_from(seq)
            outbox.flush()
    for _, name in journal.find(folder.spool):
        os.unlink(name)


def _read_out(
    found: journal.JournalContents, *, spool: Spool, on_text: Callable[[int, bytes, int], None] | None
) -> Outbox | None:
    outbox, ranks = Outbox(spool, on_text=on_text), {stream: rank for stream, (rank, _, _) in found.halves.items()}
    outbox.resume(lines=found.lines, segments=found.segments)
    splitters = {stream: Splitter(rest, shown) for stream, (_, rest, shown) in found.halves.items()}
    at = time.time()
    for entry in found.entries:
        at = entry.at
        ranks[entry.stream] = entry.rank
        splitter = splitters.setdefault(entry.stream, Splitter())
        _tell(outbox, rank=entry.rank, text=splitter.feed(entry.text, now=at), at=at)
    for stream, splitter in splitters.items():
        _tell(outbox, rank=ranks[stream], text=splitter.end(), at=at)
    return outbox if outbox.has_news() else None


def _tell(outbox: Outbox, *, rank: int, text: bytes, at: float) -> None:
    if text:
        outbox.text(rank, text=text, lines=text.count(b"\n"), at=at)


def _await_guardian(folder: StateFolder) -> None:
    """Wait until the guardian has added what is left in the pipes, and released its lock."""
    with contextlib.suppress(OSError), open(folder.file("guardian.lock"), "rb", opener=plain) as lock:
        give_up = time.monotonic() + GUARDIAN_SECONDS
        while time.monotonic() < give_up and not _is_free(lock.fileno()):
            time.sleep(0.02)


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
