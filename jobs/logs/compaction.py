"""Merge the many small files of a log into few large ones, unnoticed by readers.

Agents send a batch every few seconds, and each is a file. When an attempt is over, and every so many batches before
that, the segments of a replica are rewritten: neighbours of one rank are merged, and all are put into large files. The
new file is stored first, its rows change in one transaction, and the old files stay for a while: readers of the old
rows may still open them. After a crash at any point every line is where a row says it is, and at worst there is a file
without a row.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.utils import timezone

from common import faultpoints
from common.db import sql
from jobs.core.lifecycle import HOLDS_QUOTA
from jobs.models import LogSegment, Replica

from . import storage

FILE_BYTES = 8 * 2**20  # of text in one packed file
SEGMENT_BYTES = 2**19  # of text in one row: what a reader unpacks for a few lines
LEVEL = 6  # of zlib: written once and read for months
EVERY = 200  # segments of a replica that still runs
MOST_REPLICAS = 50  # per turn
# a file without a row may be one whose row is not committed yet, or was read a moment ago
UNREAD_FOR = timedelta(minutes=10)
SILENT_FOR = timedelta(minutes=1)  # of an attempt that is over, before it is packed
_WAITING = sql.load("jobs/sql/replicas_to_pack.sql")


@dataclass
class Run:
    """Consecutive segments of one rank, and their text."""

    rows: list[LogSegment] = field(default_factory=list)
    text: bytes = b""

    def takes(self, row: LogSegment, text: bytes) -> bool:
        if not self.rows:
            return True
        last = self.rows[-1]
        follows = last.rank == row.rank and last.first_line + last.lines == row.first_line
        return follows and len(self.text) + len(text) <= SEGMENT_BYTES


def waiting(*, now: datetime) -> list[int]:
    """Return replicas with segments to pack: those whose attempt is over, and those with very many."""
    given: dict[str, Any] = {
        "every": EVERY,
        "open": sorted(HOLDS_QUOTA),
        "before": now - SILENT_FOR,
        "limit": MOST_REPLICAS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, given)
        return [replica for (replica,) in cursor.fetchall()]


def pack(replica: int) -> int:
    """Pack one replica's segments. Return how many files were written.

    May run concurrently, and be killed at any point.
    """
    row = Replica.objects.select_related("job").filter(pk=replica).first()
    if row is None:
        return 0  # its job was removed
    files = 0
    for runs in _files(_readable(_unpacked(replica))):
        if not _replace(row, runs):
            break
        files += 1
    return files


def sweep(*, run: str, attempt: int, now: datetime) -> list[str]:
    """Delete files of an attempt that no row refers to and no reader can still have open. Return their names."""
    where, store = storage.folder(run, attempt), default_storage
    try:
        _, names = store.listdir(where)
    except FileNotFoundError:
        return []
    named = set(LogSegment.objects.filter(path__startswith=f"{where}/").values_list("path", flat=True).distinct())
    found = [path for path in (f"{where}/{name}" for name in names) if path not in named]
    old = [path for path in found if store.get_modified_time(path) < now - UNREAD_FOR]
    for path in old:
        storage.discard(path)
    return old


def _unpacked(replica: int) -> Iterable[LogSegment]:
    found = LogSegment.objects.filter(replica=replica, is_packed=False).exclude(path="")
    return found.order_by("rank", "first_line").iterator(chunk_size=500)


def _readable(rows: Iterable[LogSegment]) -> Iterator[tuple[LogSegment, bytes]]:
    """Yield the segments whose text matches their row. The others stay as they are, and are shown as they are."""
    for row in rows:
        try:
            packed = storage.read(row.path, offset=row.offset, size_bytes=row.size_bytes)
            text = zlib.decompressobj().decompress(packed, row.raw_bytes + 1)
        except (OSError, zlib.error):
            continue
        if len(text) == row.raw_bytes and text.endswith(b"\n") and text.count(b"\n") == row.lines:
            yield row, text


def _files(rows: Iterable[tuple[LogSegment, bytes]]) -> Iterator[list[Run]]:
    """Group runs of segments into files."""
    runs, size = [Run()], 0
    for row, text in rows:
        if size + len(text) > FILE_BYTES and size:
            yield runs
            runs, size = [Run()], 0
        if not runs[-1].takes(row, text):
            runs.append(Run())
        runs[-1].rows.append(row)
        runs[-1].text += text
        size += len(text)
    if size:
        yield runs


def _replace(replica: Replica, runs: list[Run]) -> bool:
    """Write one new file for these runs. Return False if another process packed them meanwhile."""
    blobs = [zlib.compress(run.text, LEVEL) for run in runs]
    first, data = runs[0].rows[0].pk, b"".join(blobs)
    where = storage.folder(replica.job.run, replica.attempt)
    name = f"{where}/{replica.role}-{replica.index}-packed-{first}-{zlib.crc32(data):08x}.z"
    with faultpoints.around("packing.save"):
        path = default_storage.save(name, ContentFile(data))
    with faultpoints.atomic("packing.replace"):
        if not _lock(runs):
            return False
        offset = 0
        for run, blob in zip(runs, blobs, strict=True):
            _become_one(run, path=path, offset=offset, size=len(blob))
            offset += len(blob)
    for old in {row.path for run in runs for row in run.rows}:
        storage.touch(old)  # `sweep` deletes it some time after it was replaced, not after it was written
    return True


def _lock(runs: list[Run]) -> bool:
    wanted = {row.pk for run in runs for row in run.rows}
    rows = LogSegment.objects.select_for_update(no_key=True).filter(pk__in=wanted, is_packed=False).order_by("pk")
    return set(rows.values_list("pk", flat=True)) == wanted


def _become_one(run: Run, *, path: str, offset: int, size: int) -> None:
    """Merge the rows into the newest one: a reader positioned between them finds it, and skips what it has read."""
    first, last = run.rows[0], run.rows[-1]
    kept = max(row.pk for row in run.rows)
    LogSegment.objects.filter(pk__in=[row.pk for row in run.rows if row.pk != kept]).delete()
    LogSegment.objects.filter(pk=kept).update(
        first_line=first.first_line, lines=sum(row.lines for row in run.rows), first_at=first.first_at,
        last_at=last.last_at, raw_bytes=len(run.text), path=path, offset=offset, size_bytes=size, is_packed=True,
    )  # fmt: skip


def pack_all() -> int:
    """Pack everything that waits now: one turn of the task."""
    return sum(pack(replica) for replica in waiting(now=timezone.now()))
