"""The form of a batch: header length, JSON header, compressed log texts. docs/wire.md, section 2. Pure."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
LEVEL = 1  # zlib level: four times faster than 6 for about a fifth more bytes, and logs compress well anyway

Item = dict  # one JSON object of the header


@dataclass
class Batch:
    """Items in order; `blobs` belong to the items of kind "log", in their order."""

    seq: int
    items: list[dict[str, Any]] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)

    @property
    def has_text(self) -> bool:
        return bool(self.blobs)


def encode(batch: Batch) -> bytes:
    """Encode a batch as stored in the spool: everything but `sent_at`, which is known only when it is sent."""
    header = json.dumps({"version": VERSION, "seq": batch.seq, "items": batch.items}, separators=(",", ":")).encode()
    return b"".join([struct.pack(">I", len(header)), header, *batch.blobs])


def decode(body: bytes) -> Batch:
    """Decode a batch; raises ValueError, KeyError or struct.error for bytes that are none."""
    (length,) = struct.unpack_from(">I", body)
    header = json.loads(body[4 : 4 + length])
    blobs, at = [], 4 + length
    for item in header["items"]:
        if item["kind"] == "log":
            blobs.append(body[at : at + item["bytes"]])
            at += item["bytes"]
    return Batch(header["seq"], header["items"], blobs)


def stamped(body: bytes, *, sent_at: float) -> bytes:
    """Return the same batch with the time of sending, without decoding its header."""
    (length,) = struct.unpack_from(">I", body)
    stamp = b'{"sent_at":%.3f,' % sent_at
    return struct.pack(">I", length + len(stamp) - 1) + stamp + body[5:]


def without_text(batch: Batch) -> Batch:
    """Return the batch with gaps in place of log texts, which record what is missing; everything else stays."""
    return Batch(batch.seq, [_gap(item) if item["kind"] == "log" else item for item in batch.items])


def only_states(batch: Batch) -> Batch:
    """Return the batch without text, samples, metrics and nodes; gaps, states and exit codes stay."""
    kept = [item for item in without_text(batch).items if item["kind"] not in ("sample", "metrics", "nodes")]
    return Batch(batch.seq, kept)


def lighter(batch: Batch, *, refused: set[str]) -> Batch | None:
    """Return what is left of a refused batch; None when it was empty already.

    The first of these steps that changes anything: without the kinds at fault, without text, with states alone, empty.
    """
    steps = (lambda one: _without(one, refused), without_text, only_states, lambda one: Batch(one.seq))
    return next((less for less in (step(batch) for step in steps) if less != batch), None)


def _without(batch: Batch, kinds: set[str]) -> Batch:
    less = without_text(batch) if "log" in kinds else batch
    return Batch(less.seq, [item for item in less.items if item["kind"] not in kinds], less.blobs)


def compressed(text: bytes) -> bytes:
    return zlib.compress(text, LEVEL)


def _gap(log: dict[str, Any]) -> dict[str, Any]:
    keys = ("rank", "first_line", "lines", "raw_bytes", "first_at", "last_at")
    return {"kind": "gap", **{key: log[key] for key in keys}}
