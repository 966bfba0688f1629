"""Output that was read but is in no batch yet, kept in a file: a killed agent loses no line. docs/wire.md, section 1.

splice(2) moves bytes from a pipe into the file within one call, so at every instant each byte is in the pipe, in the
file or in a batch. A journal has the number of the batch that its lines will be in; it is removed once that batch
exists, and is ignored beside it. The guardian adds what is left in the pipes, and `--drain` makes the batch
(agent/output/salvage.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from dataclasses import dataclass
from typing import Any, Iterator, NamedTuple, Protocol

from ..state import plain
from .spool import SUFFIX as BATCH

SUFFIX = ".journal"
TAKE_BYTES = 256 << 10
_HEAD = struct.Struct(">I")  # length of the JSON object that follows
_ENTRY = struct.Struct(">iidI")  # stream, rank, when it was read (seconds since the epoch), bytes that follow
_LENGTH_BYTES = 4
splice = getattr(os, "splice", None)  # None before Python 3.10
SPLICE_F_NONBLOCK = 0x02  # linux/splice.h


class JournalEntry(NamedTuple):
    """One piece of output. `stream` numbers the pipes of one agent; `rank` is the writer's."""

    stream: int
    rank: int
    at: float
    text: bytes


class Splits(Protocol):
    """The state of a pipe's splitter between two reads (agent/output/lines.py)."""

    def halves(self) -> tuple[bytes, bytes]: ...


class Keeps(Protocol):
    """The holder of the pipes after the agent's death (agent/output/guardian.py)."""

    def keep(self, pipe: int, *, stream: int, rank: int) -> None: ...


class Journal:
    """Written by the agent's main thread; after its death by its guardian.

    Closed until `begin`: then `take` only reads.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = -1
        self._end = 0  # offset of the next entry
        self._names: dict[int, str] = {}  # batch number -> file
        self._streams: dict[int, tuple[int, Splits | None]] = {}  # stream number -> (rank, splitter)
        self._next_stream = 0
        self.guardian: Keeps | None = None

    def add(self, pipe: int, *, rank: int, splitter: Splits | None = None) -> int:
        """Register a pipe that will be read from; return its number."""
        self._next_stream += 1
        self._streams[self._next_stream] = rank, splitter
        if self.guardian:
            self.guardian.keep(pipe, stream=self._next_stream, rank=rank)
        return self._next_stream

    def adopt(self, stream: int, *, rank: int) -> None:
        """Register a pipe under the number that another process gave it."""
        self._streams[stream] = rank, None

    def drop(self, stream: int) -> None:
        self._streams.pop(stream, None)

    def begin(self, seq: int, *, lines: dict[int, int], segments: dict[int, int]) -> None:
        """Begin a new file for what is read from now on; the previous file stays until `forget`.

        `lines` and `segments`: rank -> how many there were before.
        """
        self._shut()
        halves = {stream: (rank, splitter.halves()) for stream, (rank, splitter) in self._streams.items() if splitter}
        head = {
            "lines": list(lines.items()),
            "segments": list(segments.items()),
            "halves": [(stream, rank, *map(_to_json, two)) for stream, (rank, two) in halves.items() if any(two)],
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        try:
            self._file = os.open(_path(self._folder, seq), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            self._names[seq] = _path(self._folder, seq)
            os.pwrite(self._file, _HEAD.pack(len(text)) + text, 0)
            self._end = _HEAD.size + len(text)
        except OSError:  # a full disk: until the next batch there is no journal
            self._shut()

    def resume(self, name: str) -> None:
        """Continue a file that another process began. Raises OSError, or ValueError where it is no journal."""
        self._shut()
        content = _read(name)
        _, self._end = _read_head(content)
        self._file = plain(name, os.O_RDWR)
        for entry, start in _entries(content, self._end):
            self._end = start
            self._close_entry(len(entry.text))  # the last one may still be open

    def forget(self, seq: int) -> None:
        """Delete the journals of batches up to this number, which now exist."""
        for old in [one for one in self._names if one <= seq]:
            _unlink(self._names.pop(old))

    def close(self) -> None:
        """Close and delete: everything is in batches, and nothing more will be read."""
        self._shut()
        self.forget(max(self._names, default=0))

    def take(self, pipe: int, *, stream: int) -> bytes:
        """Read from a pipe as os.read does, through the file."""
        if self._file < 0:
            return os.read(pipe, TAKE_BYTES)
        try:
            os.pwrite(self._file, self._entry(stream), self._end)
        except OSError:
            return os.read(pipe, TAKE_BYTES)
        try:
            count = self._splice(pipe)
        except BlockingIOError:
            raise
        except OSError:  # a full disk, or a kernel or file system without support
            return self._copy(pipe, stream=stream)
        if not count:
            return b""
        piece = os.pread(self._file, count, self._end + _ENTRY.size)
        self._close_entry(count)
        return piece

    def _splice(self, pipe: int) -> int:
        if splice is None:
            raise OSError("splice comes with Python 3.10")
        return int(splice(pipe, self._file, TAKE_BYTES, offset_dst=self._end + _ENTRY.size, flags=SPLICE_F_NONBLOCK))

    def _copy(self, pipe: int, *, stream: int) -> bytes:
        """Read and write in two steps: a kill between them loses what was just read."""
        piece = os.read(pipe, TAKE_BYTES)
        written = self._entry(stream) + piece
        with contextlib.suppress(OSError):
            if piece and os.pwrite(self._file, written, self._end) == len(written):
                self._close_entry(len(piece))
        return piece

    def _entry(self, stream: int) -> bytes:
        return _ENTRY.pack(stream, self._streams[stream][0], time.time(), 0)

    def _close_entry(self, count: int) -> None:
        # Until now its length of 0 meant all the rest of the file, however much of the piece had arrived.
        os.pwrite(self._file, struct.pack(">I", count), self._end + _ENTRY.size - _LENGTH_BYTES)
        self._end += _ENTRY.size + count

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def find(folder: str) -> list[tuple[int, str]]:
    """Return the journals in a spool as (number of their batch, path), the oldest first."""
    try:
        names = [name[: -len(SUFFIX)] for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return [(seq, _path(folder, seq)) for seq in sorted(int(one) for one in names if one.isdigit())]


def last(folder: str) -> tuple[int, str] | None:
    """Return the journal whose lines are in no batch, as (number, path).

    An empty one may follow it, since a journal is begun before the previous batch is stored.
    """
    return next((one for one in find(folder) if not os.path.exists(os.path.join(folder, f"{one[0]}{BATCH}"))), None)


@dataclass(frozen=True)
class JournalContents:
    """What a journal contains.

    `lines`, `segments`: rank -> how many before; `halves`: stream -> rank and two halves.
    """

    lines: dict[int, int]
    segments: dict[int, int]
    halves: dict[int, tuple[int, bytes, bytes]]
    entries: list[JournalEntry]


def read(name: str) -> JournalContents:
    """Read a journal; raises OSError, or ValueError where the file is unusable."""
    content = _read(name)
    head, at = _read_head(content)
    halves = {stream: (rank, _from_json(rest), _from_json(shown)) for stream, rank, rest, shown in head["halves"]}
    entries = [entry for entry, _ in _entries(content, at)]
    return JournalContents(dict(head["lines"]), dict(head["segments"]), halves, entries)


def _read(name: str) -> bytes:
    with open(name, "rb", opener=plain) as file:
        return file.read()


def _read_head(content: bytes) -> tuple[dict[str, Any], int]:
    if len(content) < _HEAD.size:
        raise ValueError("no head")
    (length,) = _HEAD.unpack_from(content)
    return json.loads(content[_HEAD.size : _HEAD.size + length]), _HEAD.size + length


def _entries(content: bytes, at: int) -> Iterator[tuple[JournalEntry, int]]:
    """Yield each entry with the offset where it starts."""
    while at + _ENTRY.size <= len(content):
        start, (stream, rank, when, length) = at, _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        text = content[at : at + length] if length else content[at:]
        at += len(text)
        if text:
            yield JournalEntry(stream, rank, when, text), start


def _path(folder: str, seq: int) -> str:
    return os.path.join(folder, f"{seq}{SUFFIX}")


def _unlink(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)


def _to_json(text: bytes) -> str:
    return text.decode("latin-1")


def _from_json(text: str) -> bytes:
    return text.encode("latin-1")
