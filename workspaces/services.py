"""Send code: which files are missing, a pack of them, a manifest that names them. The only writers of a team's store.

Every change of a team's store locks its row for the moment of the change, never while bytes travel. So what a manifest
names exists when its row appears, and the collector cannot remove it concurrently.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import IO, Any, TypeVar

from django.db.models import Sum
from django.utils import timezone

from accounts.models import Team, User
from accounts.permissions import Act, require
from common import faultpoints
from common.db.db_connections import give_back
from common.errors import InvalidInput, MusterError, Problem
from common.limits.turns import ThreadTurns

from . import files, frames, manifest, reading
from .manifest import Entry
from .models import Blob, Pack, TeamStore, Workspace

QUERY_DIGESTS = 5000  # in one query
IN_MEMORY_BYTES = 1 << 20  # of a pack being received; the rest goes to a temporary file
TOUCH_AFTER = timedelta(hours=1)

# At most two of a process's connections (MUSTER_DB_POOL).
changes = ThreadTurns(2, each=1, most_waiting=32, words="other code of this team is being stored")

T = TypeVar("T")


class MissingFiles(MusterError):
    """A manifest names files that the team's store does not have; `digests` in hex."""

    def __init__(self, digests: list[str]):
        self.digests = digests
        super().__init__(f"{len(digests)} files are missing; send them to /workspaces/files, then send this again")


def missing(*, team: Team, by: User, digests: Iterable[str], size_bytes: int = 0) -> list[str]:
    """Return which of these files the team does not have.

    A `size_bytes` of the whole above the limit is refused before anything is read or sent. Raises NotAllowed,
    InvalidInput.
    """
    require(by, Act.SUBMIT, team)
    store = _store(team)
    if size_bytes > store.workspace_limit:
        raise InvalidInput(manifest.too_large(size_bytes, limit_bytes=store.workspace_limit))
    asked = list(dict.fromkeys(digests))
    known = {blob.digest.hex() for blob in _known(team, asked)}
    return [digest for digest in asked if digest not in known]


def receive(*, team: Team, by: User, stream: IO[bytes]) -> int:
    """Store the files of a pack; return how many there were. Nothing is kept of a faulty pack. Raises InvalidInput."""
    require(by, Act.SUBMIT, team)
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as copy:
        try:
            found = frames.receive(stream, into=copy, limit_bytes=_store(team).workspace_limit + frames.PIECE_BYTES)
        except frames.BadPack as error:
            raise InvalidInput(Problem("body", error.value, str(error))) from error
        if found:
            keep(team, found, copy)
    return len(found)


def keep(team: Team, found: list[frames.Frame], content: IO[bytes]) -> None:
    """Store a checked pack. Files that the team already has are not stored twice."""
    size = content.seek(0, 2)
    _check_room(team, _store(team), size)
    name = files.save(team.pk, "pack", content)
    try:
        with _changing(team), faultpoints.atomic("workspaces.keep"):
            is_needed = _register(team, found, name=name, size=size)
    except BaseException:
        files.delete(name)
        raise
    if not is_needed:
        files.delete(name)


def create(
    *,
    team: Team,
    by: User,
    put: list[Entry],
    base: int | None = None,
    remove: Iterable[str] = (),
    expected: str = "",
    left_out: list[dict[str, Any]] | None = None,
) -> tuple[Workspace, bool]:
    """Return the workspace of these entries, laid over those of `base`; False when the team had it already.

    `expected` is the digest that the sender computed: its base may be from another server that had this address.
    `left_out`: what the sender's folder had beside it; None: not said. Raises
    MissingFiles when files have to be sent first, InvalidInput for what cannot be a workspace.
    """
    require(by, Act.SUBMIT, team)
    store, origin = _store(team), _base(team, base)
    entries = manifest.changed(_entries(origin), put=put, remove=remove)
    manifest.check(entries, limit_bytes=store.workspace_limit)
    text = manifest.text_of(entries)
    digest = manifest.digest_of(text)
    if expected and expected != digest:
        message = "is not the digest of the result; send the whole list without a base"
        raise InvalidInput(Problem("digest", expected, message))
    if earlier := _earlier(team, digest):
        if left_out is not None and left_out != earlier.left_out:
            Workspace.objects.filter(pk=earlier.pk).update(left_out=left_out)
        return earlier, False
    _check_present(team, put)
    packed = files.pack_text(text)
    _check_room(team, store, len(packed), field="set")
    name = files.save_packed(team.pk, packed)
    try:
        with _changing(team), faultpoints.atomic("workspaces.create"):
            _check_room(team, lock_store(team), len(packed), field="set")
            _check_still_there(team, origin, put)
            row, is_new = Workspace.objects.get_or_create(
                team=team,
                digest=digest,
                defaults={
                    "created_by": by, "size_bytes": manifest.size_of(entries), "files": len(entries), "manifest": name,
                    "manifest_bytes": len(packed), "left_out": left_out or [],
                },
            )  # fmt: skip
            if not is_new:
                hold(row)
    except BaseException:
        files.delete(name)
        raise
    if not is_new:
        files.delete(name)
    return row, is_new


def hold(workspace: Workspace) -> None:
    """Mark a workspace as used, in the transaction that begins to use it: the collector skips recently used ones.

    Raises InvalidInput where it was collected already.
    """
    if not Workspace.objects.filter(pk=workspace.pk).update(used_at=timezone.now()):
        raise InvalidInput(
            Problem("workspace", workspace.pk, "was unused for a long time and has been deleted; upload the code again")
        )


@contextmanager
def _changing(team: Team) -> Iterator[None]:
    """Wrap a transaction that locks a team: rows of a pack take seconds, and waiting here holds no connection."""
    give_back()
    with changes.turn(team.pk):
        yield


def _store(team: Team) -> TeamStore:
    return TeamStore.objects.filter(team=team).first() or TeamStore(team=team)


def lock_store(team: Team) -> TeamStore:
    """Lock the team's store until the end of the transaction; created where there was none."""
    TeamStore.objects.get_or_create(team=team)
    return TeamStore.objects.select_for_update(no_key=True).get(team=team)


def used_bytes(team: Team) -> int:
    """Return what the team's stored files take in bytes: packs, and the lists of its workspaces."""
    packs = Pack.objects.filter(team=team).aggregate(sum=Sum("size_bytes"))["sum"] or 0
    return packs + (Workspace.objects.filter(team=team).aggregate(sum=Sum("manifest_bytes"))["sum"] or 0)


def _check_room(team: Team, store: TeamStore, size: int, *, field: str = "body") -> None:
    used = used_bytes(team)
    if used + size > store.store_limit:
        message = (
            f"the code of team {team.name} takes {used:,} of {store.store_limit:,} bytes, and this would add {size:,}"
        )
        raise InvalidInput(Problem(field, size, f"{message}; finish or remove old jobs, or ask for a larger limit"))


def _register(team: Team, found: list[frames.Frame], *, name: str, size: int) -> bool:
    """Create rows for new files; return False when there were none. Files sent again count as used now."""
    store, now = lock_store(team), timezone.now()
    known = {blob.digest for blob in _known(team, [frame.digest.hex() for frame in found])}
    for some in _batches(known):
        Blob.objects.filter(team=team, digest__in=some).update(used_at=now)
    fresh = {frame.digest: frame for frame in found if frame.digest not in known}
    if not fresh:
        return False
    _check_room(team, store, size)
    pack = Pack.objects.create(team=team, name=name, size_bytes=size)
    Blob.objects.bulk_create([_row(team, pack, frame) for frame in fresh.values()], batch_size=1000)
    return True


def _row(team: Team, pack: Pack, frame: frames.Frame) -> Blob:
    return Blob(
        team=team,
        digest=frame.digest,
        size_bytes=frame.size,
        pack=pack,
        offset=frame.offset,
        packed_bytes=frame.packed,
        is_deflated=frame.is_deflated,
    )


def _known(team: Team, digests: Iterable[str]) -> Iterator[Blob]:
    for some in _batches(digests):
        wanted = [bytes.fromhex(digest) for digest in some]
        yield from Blob.objects.filter(team=team, digest__in=wanted).only("digest", "size_bytes")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, QUERY_DIGESTS)):
        yield some


def _base(team: Team, base: int | None) -> Workspace | None:
    if base is None:
        return None
    found = Workspace.objects.filter(pk=base, team=team).exclude(manifest="").first()
    if found is None:
        message = f"is not a workspace of team {team.name}, or no longer exists; send the whole list without a base"
        raise InvalidInput(Problem("base", base, message))
    return found


def _entries(workspace: Workspace | None) -> list[Entry]:
    if workspace is None:
        return []
    try:
        return list(reading.entries(workspace))
    except reading.DamagedStore as error:
        raise InvalidInput(
            Problem("base", workspace.pk, "cannot be read; send the whole list without a base")
        ) from error


def _earlier(team: Team, digest: str) -> Workspace | None:
    """Return the workspace of the same tree, if sent before. An older release's row has no files any longer."""
    found = Workspace.objects.filter(team=team, digest=digest).exclude(manifest="").first()
    if found is not None and timezone.now() - found.used_at > TOUCH_AFTER:
        hold(found)
    return found


def _check_present(team: Team, put: list[Entry]) -> None:
    """Raise MissingFiles; or InvalidInput where an entry's size differs from that of the file with its digest."""
    sizes = {entry.digest: entry.size for entry in put if entry.is_file}
    known = {blob.digest.hex(): blob.size_bytes for blob in _known(team, sizes)}
    if absent := [digest for digest in sizes if digest not in known]:
        raise MissingFiles(absent)
    wrong = [entry for entry in put if entry.is_file and entry.size != known[entry.digest]]
    if wrong:
        message = f"the file {wrong[0].digest} has {known[wrong[0].digest]} bytes; scan the folder again"
        raise InvalidInput(Problem("set", wrong[0].size, f"{wrong[0].path}: {message}"))


def _check_still_there(team: Team, origin: Workspace | None, put: list[Entry]) -> None:
    """Check again under the lock: files that a base names are kept while it exists, all others are looked up."""
    if origin is not None:
        _base(team, origin.pk)
    _check_present(team, put)
