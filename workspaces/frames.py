"""Packs: many files in one stream, each in a frame with its digest and sizes (docs/wire.md, section 4).

A frame is checked while it streams through, using the memory of one piece; a file that exceeds its declared size stops
it.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

MAGIC = b"MUSTERP1"
HEAD = struct.Struct(">B32sQQ")  # kind, sha256 of the plain bytes, their count, how many bytes follow
RAW, DEFLATED, END, LOST = range(4)
PIECE_BYTES = 1 << 18
MAX_FRAMES = 100_000


class BadPack(ValueError):
    """The stream is no pack, or contradicts its headers; `value` is the number that was refused, if any."""

    def __init__(self, message: str, *, value: int | None = None):
        super().__init__(message)
        self.value = value


class Frame(NamedTuple):
    digest: bytes
    size: int
    packed: int
    is_deflated: bool
    offset: int = 0  # of its bytes, behind the header

    def head(self) -> bytes:
        return HEAD.pack(DEFLATED if self.is_deflated else RAW, self.digest, self.size, self.packed)


def end(count: int) -> bytes:
    """Return the end frame; without it a stream that was cut between two frames would look complete."""
    return HEAD.pack(END, bytes(32), count, 0)


def lost(digest: bytes, *, why: str) -> bytes:
    """Return a frame that replaces an unavailable file: the stream reports it instead of breaking off."""
    text = why.encode()
    return HEAD.pack(LOST, digest, 0, len(text)) + text


def receive(stream: IO[bytes], *, into: IO[bytes], limit_bytes: int) -> list[Frame]:
    """Copy a pack into `into` and check every byte of it. Raises BadPack; what was written to `into` is then useless.

    `limit_bytes` bounds the pack with its headers, and also the sum of the sizes that its files declare: inflating and
    hashing cost by plain bytes, and zlib makes a thousand of them from one.
    """
    if _exactly(stream, len(MAGIC), "its first bytes") != MAGIC:
        raise BadPack(f"does not begin with {MAGIC.decode()}: send a pack, as docs/wire.md describes it")
    into.write(MAGIC)
    frames: list[Frame] = []
    at, plain_bytes = len(MAGIC), 0
    while (frame := _next(stream, count=len(frames), at=at, limit_bytes=limit_bytes)) is not None:
        plain_bytes += frame.size
        if plain_bytes > limit_bytes:
            message = (
                f"unpacks to {plain_bytes:,} bytes or more; a pack may have at most {limit_bytes:,}; send several packs"
            )
            raise BadPack(message, value=plain_bytes)
        into.write(frame.head())
        _check(_copied(stream, frame=frame, into=into), frame=frame)
        frames.append(frame)
        at = frame.offset + frame.packed
    into.write(end(len(frames)))
    if stream.read(1):
        raise BadPack("goes on after its end")
    return frames


def copied(stored: IO[bytes], *, frame: Frame, into: IO[bytes]) -> int:
    """Append one frame of a stored pack to another; return the new offset of its bytes. Raises BadPack."""
    stored.seek(frame.offset)
    into.write(frame.head())
    at = into.tell()
    _check(_copied(stored, frame=frame, into=into), frame=frame)
    return at


def plain(pieces: Iterator[bytes], *, frame: Frame) -> Iterator[bytes]:
    """Yield the file's own bytes, never more than the frame declares. Raises BadPack."""
    left = frame.size
    for piece in _inflated(pieces) if frame.is_deflated else pieces:
        left -= len(piece)
        if left < 0:
            raise BadPack(f"file {frame.digest.hex()} unpacks to more than the {frame.size} bytes it declares")
        yield piece
    if left:
        raise BadPack(f"file {frame.digest.hex()} has {frame.size - left} bytes, not {frame.size} as it declares")


def pieces_of(stream: IO[bytes], length: int) -> Iterator[bytes]:
    while length:
        piece = stream.read(min(PIECE_BYTES, length))
        if not piece:
            raise BadPack("ends in the middle of a file; send it again")
        length -= len(piece)
        yield piece


def _next(stream: IO[bytes], *, count: int, at: int, limit_bytes: int) -> Frame | None:
    kind, digest, size, packed = HEAD.unpack(_exactly(stream, HEAD.size, f"frame {count + 1}"))
    if kind == END:
        if size != count or packed or digest != bytes(32):
            raise BadPack(f"declares {size} files at its end, but contains {count}")
        return None
    if kind not in (RAW, DEFLATED):
        raise BadPack(f"has a frame of unknown kind {kind}")
    if count >= MAX_FRAMES or at + HEAD.size + packed > limit_bytes:
        raise BadPack(f"is larger than {limit_bytes:,} bytes or {MAX_FRAMES:,} files; send several smaller packs")
    if kind == RAW and packed != size:
        raise BadPack(f"file {digest.hex()} is raw, so {packed} packed bytes cannot be {size} plain ones")
    return Frame(digest, size, packed, kind == DEFLATED, at + HEAD.size)


def _copied(stream: IO[bytes], *, frame: Frame, into: IO[bytes]) -> Iterator[bytes]:
    for piece in pieces_of(stream, frame.packed):
        into.write(piece)
        yield piece


def _check(pieces: Iterator[bytes], *, frame: Frame) -> None:
    found = hashlib.sha256()
    for piece in plain(pieces, frame=frame):
        found.update(piece)
    if found.digest() != frame.digest:
        raise BadPack(
            f"file {frame.digest.hex()} has the digest {found.hexdigest()}; it was damaged in transit; send it again"
        )


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    try:
        for piece in pieces:
            if inflater.eof:
                break
            while piece:
                yield inflater.decompress(piece, PIECE_BYTES)
                piece = inflater.unconsumed_tail
        while rest := inflater.decompress(inflater.unconsumed_tail, PIECE_BYTES):
            yield rest
    except zlib.error as error:
        raise BadPack(f"holds a file that cannot be inflated ({error})") from error
    if not inflater.eof or inflater.unused_data:
        raise BadPack("holds a file whose zlib stream ends too early or too late")


def _exactly(stream: IO[bytes], length: int, what: str) -> bytes:
    data = b""
    while len(data) < length:
        piece = stream.read(length - len(data))
        if not piece:
            raise BadPack(f"ends within {what}; send it again")
        data += piece
    return data
