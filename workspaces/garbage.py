"""Collect garbage: old workspaces without a job, files that no manifest names, packs that are mostly dead.

Mark and sweep, team by team. Manifests are read without a lock; under the lock only those added meanwhile are read, and
rows are deleted. A manifest created later looks its files up under the same lock, and is refused with the missing ones.

Stored files go last, by the only rule that is safe at any time: no row names them, and they are a day old. So what an
upload is about to name, or a reader is about to open, is still there.
"""

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, TypeVar

from django.db.models import Count, F, Q, Sum
from django.utils import timezone

from accounts.models import Team
from common import faultpoints
from common.files import file_deletion

from . import files, frames, manifest
from .models import Blob, Pack, TeamStore, Workspace

log = logging.getLogger(__name__)
T = TypeVar("T")

KEEP_WORKSPACES = timedelta(days=7)
KEEP_UNNAMED = timedelta(days=1)  # for a file whose manifest is still to come, or a stored file whose row is
BATCH = 2000
MOSTLY_DEAD = 0.5


@dataclass
class Collected:
    workspaces: int = 0
    blobs: int = 0
    packs: int = 0
    stored_files: int = 0


def collect(*, now: datetime | None = None) -> Collected:
    """Run every step. May run twice at once, and be killed anywhere: every step is complete by itself."""
    now = now or timezone.now()
    found = Collected()
    for team in Team.objects.order_by("pk"):
        found.workspaces += expire(team, before=now - KEEP_WORKSPACES)
        found.blobs += sweep(team, before=now - KEEP_UNNAMED)
        found.packs += renew(team, before=now - KEEP_UNNAMED)
    with file_deletion.allowed() as is_allowed:
        found.stored_files = delete_unnamed(before=now - KEEP_UNNAMED) if is_allowed else 0
    log.info("collected %s", found)
    return found


def expire(team: Team, *, before: datetime) -> int:
    """Delete workspaces of no job that were not used lately; return how many.

    A job being submitted holds a lock on its workspace's row; a row that it holds is skipped.
    """
    old = Workspace.objects.filter(team=team, jobs=None, used_at__lt=before)
    count = 0
    for pk in old.values_list("pk", flat=True):
        with faultpoints.atomic("garbage.expire"):
            _lock(team)
            # FOR UPDATE, not the weaker lock: a job being inserted holds a key lock on the row it references.
            row = Workspace.objects.select_for_update(skip_locked=True, of=("self",)).filter(pk=pk, used_at__lt=before)
            if row.first() is not None and not Workspace.objects.filter(pk=pk, jobs__isnull=False).exists():
                Workspace.objects.filter(pk=pk).delete()
                count += 1
    return count


def sweep(team: Team, *, before: datetime) -> int:
    """Delete the rows of files that no manifest names and that were not sent lately; return how many."""
    candidates = Blob.objects.filter(team=team, used_at__lt=before)
    if not candidates.exists():
        return 0
    alive, seen = _named(Workspace.objects.filter(team=team).values_list("pk", "manifest"))
    dead = [pk for pk, digest in candidates.values_list("pk", "digest").iterator() if digest not in alive]
    return sum(_sweep_some(team, some, seen=seen, before=before) for some in _batches(dead))


def _sweep_some(team: Team, dead: list[int], *, seen: set[int], before: datetime) -> int:
    with faultpoints.atomic("garbage.sweep"):
        _lock(team)
        fresh, _ = _named(Workspace.objects.filter(team=team).exclude(pk__in=seen).values_list("pk", "manifest"))
        unused = Blob.objects.filter(pk__in=dead, used_at__lt=before)
        gone = [pk for pk, digest in unused.values_list("pk", "digest") if digest not in fresh]
        return Blob.objects.filter(pk__in=gone).delete()[0]


def _named(rows: Iterable[tuple[int, str]]) -> tuple[set[bytes], set[int]]:
    """Return the digests that these manifests name, and the rows seen.

    An unreadable one ends the sweep: it may name anything.
    """
    digests: set[bytes] = set()
    seen: set[int] = set()
    for pk, name in rows:
        seen.add(pk)
        if name and (text := _text(pk, name)) is not None:
            digests.update(bytes.fromhex(entry.digest) for entry in manifest.read(text) if entry.is_file)
    return digests, seen


def _text(pk: int, name: str) -> str | None:
    try:
        return files.text(name)
    except FileNotFoundError:
        if Workspace.objects.filter(pk=pk).exists():
            raise
        return None  # deleted meanwhile by another collector


def renew(team: Team, *, before: datetime) -> int:
    """Copy packs that are mostly dead; return how many."""
    heads = Count("blobs") * frames.HEAD.size
    sized = Pack.objects.filter(team=team, created_at__lt=before).annotate(alive=Sum("blobs__packed_bytes") + heads)
    dying = sized.filter(Q(alive=None) | Q(alive__lt=F("size_bytes") * MOSTLY_DEAD))
    return sum(_renew(pack) for pack in list(dying))


def _renew(pack: Pack) -> bool:
    """Copy what is alive into a new pack. Readers that know the old location find the file there for another day."""
    with tempfile.TemporaryFile() as copy:
        try:
            kept = _copied(list(pack.blobs.order_by("offset")), pack.name, copy)
        except (OSError, frames.BadPack):
            log.exception("the pack %s cannot be copied and is left as it is", pack.name)
            return False
        name = files.save(pack.team_id, "pack", copy) if kept else ""
        size = copy.seek(0, 2)
    with faultpoints.atomic("garbage.renew"):
        _lock(pack.team)
        if not Pack.objects.filter(pk=pack.pk).exists():
            return False
        _move(pack, kept, name=name, size=size)
    return True


def _move(pack: Pack, kept: dict[int, int], *, name: str, size: int) -> None:
    if kept:
        new = Pack.objects.create(team_id=pack.team_id, name=name, size_bytes=size)
        rows = list(Blob.objects.filter(pack=pack, pk__in=kept))
        for row in rows:
            row.pack, row.offset = new, kept[row.pk]
        Blob.objects.bulk_update(rows, ["pack", "offset"], batch_size=500)
    pack.delete()


def _copied(rows: list[Blob], name: str, copy: IO[bytes]) -> dict[int, int]:
    """Return each file's new offset.

    Every byte is checked again while copying: a copy of damaged data would hide the damage.
    """
    if not rows:
        return {}
    kept: dict[int, int] = {}
    copy.write(frames.MAGIC)
    with files.open_file(name) as stored:
        for row in rows:
            kept[row.pk] = frames.copied(stored, frame=row.frame, into=copy)
    copy.write(frames.end(len(rows)))
    return kept


def delete_unnamed(*, before: datetime) -> int:
    """Delete stored files that no row names; return how many.

    Rows are created after their files, so the rows are read after the files were listed.
    """
    old = [name for name, written in files.listed() if written < before]
    count = 0
    for some in _batches(old):
        named = {
            *Pack.objects.filter(name__in=some).values_list("name", flat=True),
            *Workspace.objects.filter(manifest__in=some).values_list("manifest", flat=True),
        }
        for name in set(some) - named:
            files.delete(name)
            count += 1
    return count


def _lock(team: Team) -> None:
    TeamStore.objects.get_or_create(team=team)
    TeamStore.objects.select_for_update(no_key=True).get(team=team)


def _batches(items: list[T]) -> Iterator[list[T]]:
    return (items[begin : begin + BATCH] for begin in range(0, len(items), BATCH))
