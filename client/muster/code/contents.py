"""The content of files: their digests, and packs of them to send (docs/wire.md, section 4)."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from muster.code.workspace import File, Stat, unreadable
from muster.errors import WorkspaceError

MAGIC = b"MUSTERP1"
HEAD = struct.Struct(">B32sQQ")  # kind, sha256, plain bytes, bytes that follow
RAW, DEFLATED, END = 0, 1, 2
PACK_BYTES = 4 << 20  # plain bytes of one pack; a larger file gets its own
PIECE_BYTES = 1 << 20
TRIES = 3
# Do not follow a link that replaced the file, nor wait for a pipe. Not every system has each flag.
FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


class Changed(WorkspaceError):
    """A file is no longer what it was when the folder was scanned."""

    def __init__(self, path: str) -> None:
        self.path = path
        way_out = "stop the program that writes it, or list it in .musterignore"
        super().__init__(f"{path} changed during each of {TRIES} attempts to read it: {way_out}")


class Pack(NamedTuple):
    content: bytes
    plain_bytes: int


def digest(file: File) -> str:
    """Return the sha256 of a file's content, in hex.

    Raises Changed when the file was replaced or changed since the scan.
    """
    found = hashlib.sha256()
    for piece in _pieces(file):
        found.update(piece)
    return found.hexdigest()


def packs(files: Iterable[File], *, digest_of: Callable[[str], str]) -> Iterator[Pack]:
    """Yield packs with each content once. Raises Changed when one no longer matches its digest."""
    frames: list[bytes] = []
    size, done = 0, set()
    for file in files:
        wanted = digest_of(file.path)
        if wanted in done:
            continue
        done.add(wanted)
        if frames and size + file.seen.size > PACK_BYTES:
            yield _pack(frames, size)
            frames, size = [], 0
        frames.append(_frame(file, digest=wanted))
        size += file.seen.size
    if frames:
        yield _pack(frames, size)


def _pack(frames: list[bytes], size: int) -> Pack:
    return Pack(b"".join([MAGIC, *frames, HEAD.pack(END, bytes(32), len(frames), 0)]), size)


def _frame(file: File, *, digest: str) -> bytes:
    content = b"".join(_pieces(file))
    found = hashlib.sha256(content)
    if found.hexdigest() != digest:
        raise Changed(file.path)
    packed = zlib.compress(content, 6)
    kind, body = (DEFLATED, packed) if len(packed) < len(content) else (RAW, content)
    return HEAD.pack(kind, found.digest(), len(content), len(body)) + body


def _pieces(file: File) -> Iterator[bytes]:
    """Yield the file from beginning to end; its stat before and after must be that of the scan. Raises Changed."""
    try:
        with open(os.open(file.source, FLAGS), "rb") as source:
            _check(source.fileno(), file=file)
            while piece := source.read(PIECE_BYTES):
                yield piece
            _check(source.fileno(), file=file)
    except FileNotFoundError as error:
        raise Changed(file.path) from error
    except OSError as error:
        error.filename = error.filename or file.source
        raise unreadable(error) from error


def _check(number: int, *, file: File) -> None:
    if Stat.of(os.fstat(number)) != file.seen:
        raise Changed(file.path)
