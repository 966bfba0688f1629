"""Scalars of TensorBoard's event files, which many programs write without knowing of Muster.

A reader of our own, because the agent is the standard library alone: a file is a sequence of records (TFRecord: length,
checksum, content, checksum), each of which is one `Event` (tensorflow/core/util/event.proto). Only scalars are read,
within bounds of bytes and records, in a thread of its own. The checksums are not looked at: a wrong scalar would be a
wrong dot in a chart.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..state import plain

PREFIX = "tensorboard/"  # distinguishes them from the series that the program reports itself
MARK = ".tfevents."  # in the name of each such file
LOOK_SECONDS = 2.0
READ_BYTES = 1 << 20  # of all files at each look
MOST_RECORDS = 1000  # that are decoded at each look: of more, the last
MOST_RECORD_BYTES = 1 << 16  # a larger one holds an image, or a graph
MOST_FILES = 16
MOST_ENTRIES = 5000  # of folders, at each look
DEEPEST = 6
_IGNORED = frozenset({"__pycache__", "node_modules", "site-packages"})
_HEAD, _TAIL = 12, 4  # bytes around a record's content
_FLOAT, _DOUBLE = 1, 2  # tensorflow/core/framework/types.proto
_FORMS = {_FLOAT: ("<f", 4), _DOUBLE: ("<d", 8)}


class Scalar(NamedTuple):
    at: float  # seconds since the epoch
    step: int
    tag: str
    value: Optional[float]  # None: not finite


Sink = Callable[[Optional[int], List[Any]], None]


class EventFiles(threading.Thread):
    """Passes new scalars of the event files below a folder on, as points: [time, step, {name: value}].

    `on_point` gets the process that writes them, None where the file's name does not tell.
    """

    def __init__(self, top: str, *, on_point: Sink, trouble: Callable[[str], None]) -> None:
        super().__init__(name="event-files", daemon=True)
        self._top, self._on_point, self._trouble = top, on_point, trouble
        self._since = time.time() - 1.0  # what an attempt before wrote is in its own charts
        self._files: Dict[str, EventFile] = {}
        self._first = ""  # the folder of the first file, whose series have no folder in their names
        self._over = threading.Event()

    def run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(LOOK_SECONDS)
            try:
                self.look()
            except Exception as error:  # the outermost loop of this thread
                self._trouble(f"no scalars: {type(error).__name__}: {error}")

    def finish(self) -> None:
        """Read what is left, within the bounds of one look. Nothing writes to the files any longer."""
        self._over.set()
        self.join(LOOK_SECONDS)

    def look(self) -> None:
        """Read once, in this thread: the newest files first."""
        left = READ_BYTES
        for path in self._newest():
            file = self._files.setdefault(path, EventFile(path))
            scalars, count = file.read(left)
            left -= count
            self._pass_on(path, [one for one in scalars if one.at >= self._since])

    def _newest(self) -> List[str]:
        found = []
        for entry in _event_files(self._top):
            with contextlib.suppress(OSError):
                found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        found = sorted((one for one in found if one[0] >= self._since), reverse=True)
        in_folders: Dict[str, str] = {}  # of each folder the newest file: a program that starts again begins another
        for _, path in found:
            in_folders.setdefault(os.path.dirname(path), path)
        return list(in_folders.values())[:MOST_FILES]

    def _pass_on(self, path: str, scalars: List[Scalar]) -> None:
        if not scalars:
            return
        folder = os.path.dirname(path)
        self._first = self._first or folder
        label = "" if folder == self._first else f"{_label(folder, self._first)}/"
        points: Dict[int, List[Any]] = {}
        for one in scalars:
            point = points.setdefault(one.step, [one.at, one.step, {}])
            point[2][f"{PREFIX}{label}{one.tag}"] = one.value
        for point in points.values():
            self._on_point(writer_of(path), point)


class EventFile:
    def __init__(self, path: str) -> None:
        self._path, self._is_broken = path, False
        self._at = self._size = 0  # bytes

    def read(self, most: int) -> Tuple[List[Scalar], int]:
        """Return new scalars and how many bytes were read. A record that is not whole yet is left for the next time."""
        if self._is_broken or most < _HEAD + _TAIL:
            return [], 0
        try:
            with open(self._path, "rb", buffering=0, opener=_no_link) as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._size:  # it was rewritten
                    self._at = 0
                self._size = size
                file.seek(self._at)
                data = file.read(most)
        except OSError:
            return [], 0
        found, at = [], 0
        while at + _HEAD <= len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            if length > 1 << 32:  # no record: whatever it is, it is not read any further
                self._is_broken = True
                break
            end = at + _HEAD + length + _TAIL
            if length > MOST_RECORD_BYTES:
                at = end  # perhaps beyond what was read: it is passed over
                continue
            if end > len(data):
                break
            found.append(data[at + _HEAD : end - _TAIL])
            at = end
        self._at += at
        return [scalar for record in found[-MOST_RECORDS:] for scalar in scalars_of(record)], len(data)


def _no_link(path: str, flags: int) -> int:
    return plain(path, flags | os.O_NOFOLLOW)  # one may have been put in its place since the folder was listed


def scalars_of(event: bytes) -> List[Scalar]:
    """Return the scalars of one record; none if it holds something else, or is no event."""
    try:
        fields = list(_fields(event))
        at = next((struct.unpack("<d", value)[0] for number, value in fields if number == 1), 0.0)
        step = next((value for number, value in fields if number == 2), 0)
        summaries = [value for number, value in fields if number == 5]
        values = [value for one in summaries for number, value in _fields(one) if number == 1]
        found = [(tag, value) for tag, value in map(_value, values) if tag and value is not None]
    except (ValueError, IndexError, TypeError, AttributeError, struct.error):
        return []
    if not (math.isfinite(at) and isinstance(step, int)):
        return []
    step = step - (1 << 64) if step >= 1 << 63 else step
    return [Scalar(at, step, tag, value if math.isfinite(value) else None) for tag, value in found]


def _value(summary: bytes) -> Tuple[str, Optional[float]]:
    """Return the tag and the number of a `Summary.Value`, as torch and tensorboardX write it, or as TensorFlow 2 does."""
    tag, found = "", None
    for number, value in _fields(summary):
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2:
            found = struct.unpack("<f", value)[0]
        elif number == 8:
            found = _of_tensor(value)
    return tag, found


def _of_tensor(tensor: bytes) -> Optional[float]:
    """Return the one number of a `TensorProto`; None if it has another type, or several."""
    fields = list(_fields(tensor))
    form, size = _FORMS.get(next((value for number, value in fields if number == 1), 0), ("", 0))
    for number, value in fields:
        if form and number in (4, 5, 6) and len(value) == size:
            return float(struct.unpack(form, value)[0])
    return None


def _fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    """Yield the fields of a protobuf message: an integer, or bytes. Raises ValueError, IndexError for anything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > len(data):
            raise ValueError("no protobuf message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("no number")


def _event_files(top: str) -> "Iterator[os.DirEntry[str]]":
    seen, waiting = 0, [(top, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_ENTRIES:
                    return
                if MARK in entry.name and entry.is_file(follow_symlinks=False):
                    yield entry
                elif (
                    depth < DEEPEST
                    and entry.name not in _IGNORED
                    and not entry.name.startswith(".")
                    and entry.is_dir(follow_symlinks=False)
                ):
                    waiting.append((entry.path, depth + 1))


def _label(folder: str, first: str) -> str:
    """Return what tells another folder of a run apart: its path below the first one, or below what both lie in."""
    return os.path.relpath(folder, os.path.commonpath([folder, first]))


def writer_of(path: str) -> Optional[int]:
    """Return the process that writes a file: `events.out.tfevents.<time>.<host>.<pid>.<number>`, as torch names it.

    A host's name may have dots, and tensorboardX writes no pid.
    """
    parts = os.path.basename(path).split(".")
    return int(parts[-2]) if len(parts) > 5 and parts[-1].isdecimal() and parts[-2].isdecimal() else None
