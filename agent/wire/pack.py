"""Read a pack: many files in one stream, each checked while it streams through. docs/wire.md, section 4."""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Callable, Iterator, NamedTuple

MAGIC = b"MUSTERP1"
HEAD = struct.Struct(">B32sQQ")  # kind, sha256, plain bytes, bytes that follow
RAW, DEFLATED, END, LOST = range(4)
PIECE_BYTES = 1 << 18
MAX_WORDS = 2000  # bytes of the reason why a file is lost

Read = Callable[[int], bytes]  # reads at most so many bytes; returns none at the end


class Broken(Exception):
    """The stream ended early or contradicts its headers: worth another try."""


class Damaged(Exception):
    """A file arrived whole but does not match its digest."""


class LostFile(Exception):
    """The server no longer has a file: trying again is useless."""


class File(NamedTuple):
    digest: str
    size: int
    pieces: Iterator[bytes]  # must be consumed before the next file; raises Broken


def files(read: Read) -> Iterator[File]:
    if _exactly(read, len(MAGIC)) != MAGIC:
        raise Broken("the answer is not a pack")
    count = 0
    while True:
        kind, digest, size, packed = HEAD.unpack(_exactly(read, HEAD.size))
        if kind == END:
            if size != count:
                raise Broken(f"{count} files of {size} arrived")
            return
        count += 1
        if kind == LOST:
            raise LostFile(
                f"the file {digest.hex()[:12]} {_exactly(read, min(packed, MAX_WORDS)).decode(errors='replace')}"
            )
        if kind not in (RAW, DEFLATED):
            raise Broken(f"a frame of the unknown kind {kind}")
        yield File(digest.hex(), size, _checked(_plain(read, packed, kind), digest=digest, size=size))


def _checked(pieces: Iterator[bytes], *, digest: bytes, size: int) -> Iterator[bytes]:
    found, left = hashlib.sha256(), size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            break
        found.update(piece)
        yield piece
    if left or found.digest() != digest:
        raise Damaged(f"the file {digest.hex()[:12]} arrived damaged")


def _plain(read: Read, packed: int, kind: int) -> Iterator[bytes]:
    """Yield at most PIECE_BYTES at a time, however small their packed form."""
    inflater = zlib.decompressobj() if kind == DEFLATED else None
    while packed:
        piece = _some(read, min(PIECE_BYTES, packed))
        packed -= len(piece)
        if inflater is None:
            yield piece
        else:
            yield from _inflated(inflater, piece)


def _inflated(inflater: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
    try:
        plain = inflater.decompress(piece, PIECE_BYTES)
        while plain:
            yield plain
            plain = inflater.decompress(inflater.unconsumed_tail, PIECE_BYTES)
    except zlib.error as error:
        raise Damaged(f"a file cannot be inflated: {error}") from error


def _exactly(read: Read, length: int) -> bytes:
    data = b""
    while len(data) < length:
        data += _some(read, length - len(data))
    return data


def _some(read: Read, length: int) -> bytes:
    piece = read(length)
    if not piece:
        raise Broken("the answer ended early")
    return piece
