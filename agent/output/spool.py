"""Unacknowledged batches on disk, so that an agent's death or a control plane's outage loses no line.

No fsync: the machine's crash takes the ranks too, and a rank must not wait for its log to reach a disk. When the limit
is reached the oldest text gives way to numbered gaps; states and exit codes never do.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from typing import Any, Callable

from .. import faultpoints
from ..state import plain
from ..wire import batch as form

LIMIT_BYTES = int(os.environ.get("MUSTER_SPOOL_BYTES", 256 << 20))
SUFFIX = ".batch"
HAS_TEXT, HAS_ITEMS, IS_BARE = 0, 1, 2  # what can still be removed from a batch
_LIGHTER = {HAS_TEXT: form.without_text, HAS_ITEMS: form.only_states}


class Spool:
    """Numbered from 1. Written by the agent's main thread, read and emptied by its sender."""

    def __init__(self, folder: str, *, limit_bytes: int | None = None) -> None:
        self._folder = folder
        self._limit = LIMIT_BYTES if limit_bytes is None else limit_bytes
        self._changed = threading.Condition()
        self._sizes: dict[int, int] = {}  # seq -> bytes, oldest first
        self._weight: dict[int, int] = {}  # seq -> HAS_TEXT...; absent means HAS_TEXT
        self._held: dict[int, bytes] = {}  # seq -> batch that did not fit on a full disk
        self._total = 0  # bytes
        os.makedirs(folder, exist_ok=True)
        self._find()
        self._next = max(self._sizes, default=0) + 1

    @property
    def next_seq(self) -> int:
        return self._next

    def number_from(self, seq: int) -> None:
        """Continue numbering at `seq`, for a spool that was emptied before its agent died: numbers are never reused."""
        self._next = max(self._next, seq)

    def put(self, items: list[dict[str, Any]], *, blobs: list[bytes], kept: Callable[[int], None] | None = None) -> int:
        """Store a batch until it is acknowledged; return its number. Calls `kept` before the batch can be sent."""
        with self._changed:
            batch = form.Batch(self._next, items, blobs)
            self._next += 1
            self._keep(batch)
            self._weight[batch.seq] = HAS_TEXT if batch.has_text else HAS_ITEMS
            if kept:
                kept(batch.seq)
            self._make_room()
            self._changed.notify_all()
            return batch.seq

    def get(self, seq: int | None = None) -> tuple[int, bytes] | None:
        """Return the batch with this number, or the oldest; None if there is none."""
        with self._changed:
            found = next(iter(self._sizes), None) if seq is None else seq
            if found not in self._sizes or found is None:
                return None
            return found, self._read(found)

    def acknowledge(self, seq: int) -> None:
        """Delete every batch up to `seq`."""
        with self._changed:
            for done in [one for one in self._sizes if one <= seq]:
                self._forget(done)
            self._changed.notify_all()

    def refused(self, seq: int, *, kinds: set[str]) -> bool:
        """Remove from a batch what the control plane will never accept. False when nothing is left to remove."""
        with self._changed:
            if seq not in self._sizes:
                return True
            try:
                less = form.lighter(form.decode(self._read(seq)), refused=kinds)
            except (OSError, ValueError, KeyError, struct.error):
                less = form.Batch(seq)  # the stored bytes are corrupt: their number must still be used
            if less is None:
                return False
            self._keep(less)
            self._weight[seq] = HAS_TEXT if less.has_text else HAS_ITEMS
            return True

    def __len__(self) -> int:
        return len(self._sizes)

    def wait(self, timeout: float | None, *, until: Callable[[], bool]) -> None:
        """Block until there is a batch, or `until()` holds, or `timeout` seconds passed."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._sizes) or until(), timeout)

    def poke(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _find(self) -> None:
        names = [name for name in os.listdir(self._folder) if name.endswith(SUFFIX)]
        for seq in sorted(int(name[: -len(SUFFIX)]) for name in names if name[: -len(SUFFIX)].isdigit()):
            self._note(seq, size=os.path.getsize(self._path(seq)))

    def _note(self, seq: int, *, size: int) -> None:
        self._total += size - self._sizes.get(seq, 0)
        self._sizes[seq] = size

    def _keep(self, batch: form.Batch) -> None:
        body = form.encode(batch)
        try:
            with faultpoints.around("agent.spool"):
                self._write(batch.seq, body=body)
            self._held.pop(batch.seq, None)
        except OSError:
            # The disk is full: states and exit codes are held in memory, text is given up.
            body = self._held[batch.seq] = form.encode(form.without_text(batch))
        self._note(batch.seq, size=len(body))

    def _write(self, seq: int, *, body: bytes) -> None:
        unfinished = self._path(seq) + ".new"
        try:
            with open(unfinished, "wb") as file:
                file.write(body)
            os.replace(unfinished, self._path(seq))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def _read(self, seq: int) -> bytes:
        if seq in self._held:
            return self._held[seq]
        with open(self._path(seq), "rb", opener=plain) as file:
            return file.read()

    def _make_room(self) -> None:
        for weight in (HAS_TEXT, HAS_ITEMS):
            for seq in list(self._sizes):
                if self._total <= self._limit:
                    return
                if self._weight.get(seq, HAS_TEXT) == weight:
                    self._lighten(seq, weight=weight)

    def _lighten(self, seq: int, *, weight: int) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._keep(_LIGHTER[weight](form.decode(self._read(seq))))
        self._weight[seq] = weight + 1

    def _forget(self, seq: int) -> None:
        self._total -= self._sizes.pop(seq)
        self._weight.pop(seq, None)
        self._held.pop(seq, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(seq))

    def _path(self, seq: int) -> str:
        return os.path.join(self._folder, f"{seq}{SUFFIX}")
