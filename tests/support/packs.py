"""Packs and manifests as a client sends them, implemented from docs/wire.md and not from the server's own code."""

import hashlib
import struct
import zlib
from typing import Any

RAW, DEFLATED, END, LOST = range(4)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def frame(
    content: bytes, *, kind: int = DEFLATED, digest: str = "", size: int | None = None, packed: bytes | None = None
) -> bytes:
    """One file; its header fields can be made wrong."""
    body = packed if packed is not None else zlib.compress(content) if kind == DEFLATED else content
    said = len(content) if size is None else size
    return struct.pack(">B32sQQ", kind, bytes.fromhex(digest or sha(content)), said, len(body)) + body


def end(count: int) -> bytes:
    return struct.pack(">B32sQQ", END, bytes(32), count, 0)


def pack(*contents: bytes, kind: int = DEFLATED) -> bytes:
    return b"MUSTERP1" + b"".join(frame(one, kind=kind) for one in contents) + end(len(contents))


def unpacked(stream: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Files by digest, and lost files by digest with their message."""
    assert stream[:8] == b"MUSTERP1"
    at, files, lost = 8, {}, {}
    while True:
        kind, digest, size, length = struct.unpack(">B32sQQ", stream[at : at + 49])
        at += 49
        body, at = stream[at : at + length], at + length
        if kind == END:
            assert size == len(files) + len(lost) and at == len(stream)
            return files, lost
        if kind == LOST:
            lost[digest.hex()] = body.decode()
            continue
        files[digest.hex()] = zlib.decompress(body) if kind == DEFLATED else body
        assert sha(files[digest.hex()]) == digest.hex() and len(files[digest.hex()]) == size


def file(path: str, content: bytes, **said: Any) -> dict[str, Any]:
    return {"path": path, "kind": "file", "size": len(content), "digest": sha(content), **said}


def link(path: str, target: str) -> dict[str, Any]:
    return {"path": path, "kind": "link", "target": target}


def manifest(*entries: dict[str, Any]) -> str:
    """The canonical text of entries in the form in which they are sent."""
    lines = []
    for one in sorted(entries, key=lambda entry: entry["path"].encode()):
        if one["kind"] == "link":
            lines.append(f"l\t{one['target']}\t{one['path']}\n")
        else:
            lines.append(f"{'x' if one.get('executable') else 'f'}\t{one['size']}\t{one['digest']}\t{one['path']}\n")
    return "muster workspace 1\n" + "".join(lines)
