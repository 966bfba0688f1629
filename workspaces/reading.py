"""Read code back: a workspace's entries, one file of it, many as a pack. Callers have checked permissions.

No file can be read by its digest alone: every access starts with a workspace, and only files that its manifest names
are returned.
"""

import logging
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import IO, NamedTuple

from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import readable_teams
from common.db.db_connections import give_back
from common.errors import InvalidInput, MusterError, Problem
from common.limits.turns import ThreadTurns

from . import files, frames, manifest
from .difference import Difference, difference, to_read
from .manifest import Entry
from .models import Blob, Workspace

log = logging.getLogger(__name__)

MAX_SHOWN_BYTES = 8 << 20  # of one file, held in memory
# Each takes some 100 MB while the list is processed.
turns = ThreadTurns(2, each=1, most_waiting=4, words="several of your file lists are being read")
KEPT_LISTS = 4  # sets of digests, which never change; the largest takes 10 MB


class FileLists:
    """The digests of the workspaces that agents asked for last, and the turns at reading them."""

    def __init__(self, turns: ThreadTurns):
        self.turns = turns
        self.kept: dict[int, frozenset[bytes]] = {}

    def keep(self, workspace: int, digests: frozenset[bytes]) -> None:
        self.kept[workspace] = digests
        for oldest in list(self.kept)[:-KEPT_LISTS]:
            self.kept.pop(oldest, None)


lists = FileLists(
    ThreadTurns(1, each=1, most_waiting=64, most_in_all=128, words="many replicas of this team are fetching their code")
)


class DamagedStore(MusterError):
    """A stored file is missing or damaged."""


class FramePosition(NamedTuple):
    name: str
    frame: frames.Frame


def readable_by(user: User) -> QuerySet[Workspace]:
    teams = readable_teams(user)
    return Workspace.objects.all() if teams is None else Workspace.objects.filter(team__in=teams)


@contextmanager
def turn(user: User) -> Iterator[None]:
    """Hold a turn around work on a whole list of files. Raises Busy where too many of one user wait."""
    give_back()  # so that waiting here does not use up a connection
    with turns.turn(user.pk):
        yield


def entries(workspace: Workspace) -> Iterator[Entry]:
    """Yield the entries, sorted by path, one after another.

    Raises InvalidInput for a workspace of an older release, DamagedStore when the store is damaged.
    """
    if not workspace.manifest:
        message = "was stored in the format of an older release; upload the code again"
        raise InvalidInput(Problem("workspace", workspace.pk, message))
    try:
        yield from manifest.read(files.text(workspace.manifest))
    except (OSError, ValueError, zlib.error) as error:
        log.exception("the list of workspace %s cannot be read", workspace.pk)
        raise DamagedStore("its list of files cannot be read from the store; inform the administrator") from error


def without_file(workspace: Workspace, asked: Iterable[str]) -> set[str]:
    """Return which of these digests belong to no file of this workspace.

    All replicas of a job ask for this, so the last lists are kept. Raises InvalidInput and DamagedStore as `entries` does, and
    Busy where very many of a team wait.
    """
    known = lists.kept.get(workspace.pk)
    if known is None:
        give_back()
        with lists.turns.turn(workspace.team_id):
            known = lists.kept.get(workspace.pk)
            if known is None:
                known = frozenset(bytes.fromhex(entry.digest) for entry in entries(workspace) if entry.is_file)
                lists.keep(workspace.pk, known)
    return {digest for digest in asked if bytes.fromhex(digest) not in known}


def content(workspace: Workspace, entry: Entry) -> bytes:
    """Return a whole file. Raises InvalidInput for one too large to show, DamagedStore when the store is damaged."""
    if entry.size > MAX_SHOWN_BYTES:
        message = f"has {entry.size:,} bytes, at most {MAX_SHOWN_BYTES:,} can be shown; run a job that reads it"
        raise InvalidInput(Problem("path", entry.path, message))
    positions = _positions(workspace, [entry.digest])
    if not positions:
        raise DamagedStore(f"{entry.path} is no longer in the store")
    return _plain(positions[0])


def compare(before: Workspace, after: Workspace) -> Difference:
    """Return what changed from one to the other, with lines where both are text. Raises InvalidInput and DamagedStore."""
    old, new = list(entries(before)), list(entries(after))
    pairs = to_read(old, new)
    sides = {
        "before": _by_digest(before, [one for one, _ in pairs]),
        "after": _by_digest(after, [one for _, one in pairs]),
    }

    def read(side: str, entry: Entry) -> bytes:
        position = sides[side].get(entry.digest)
        if position is None:
            raise DamagedStore(f"{entry.path} is no longer in the store")
        return _plain(position)

    return difference(old, new, read=read)


def _by_digest(workspace: Workspace, asked: list[Entry]) -> dict[str, FramePosition]:
    return {
        position.frame.digest.hex(): position for position in _positions(workspace, [entry.digest for entry in asked])
    }


def manifest_text(workspace: Workspace) -> Iterator[bytes]:
    """Return the manifest as stored: zlib, in pieces. Raises DamagedStore at once."""
    try:
        stored = files.open_file(workspace.manifest)
    except OSError as error:
        raise DamagedStore("the list of its files cannot be read") from error
    return _pieces(stored)


def _pieces(stored: IO[bytes]) -> Iterator[bytes]:
    with stored:
        while piece := stored.read(frames.PIECE_BYTES):
            yield piece


def pack(workspace: Workspace, digests: Iterable[str]) -> Iterator[bytes]:
    """Return these files as a pack, in storage order; an unavailable file is reported inside it.

    All database queries run at once, so that the pieces can be taken without a connection.
    """
    asked = list(dict.fromkeys(digests))
    return _packed(_positions(workspace, asked), asked)


def _positions(workspace: Workspace, digests: list[str]) -> list[FramePosition]:
    wanted = [bytes.fromhex(digest) for digest in digests]
    found: list[FramePosition] = []
    for begin in range(0, len(wanted), 5000):
        rows = Blob.objects.filter(team=workspace.team_id, digest__in=wanted[begin : begin + 5000])
        found += [FramePosition(row.pack.name, row.frame) for row in rows.select_related("pack")]
    return sorted(found, key=lambda position: (position.name, position.frame.offset))


def _packed(positions: list[FramePosition], asked: list[str]) -> Iterator[bytes]:
    yield frames.MAGIC
    absent = {bytes.fromhex(digest) for digest in asked} - {position.frame.digest for position in positions}
    for digest in sorted(absent):
        yield frames.lost(digest, why="is no longer in the store")
    for name, some in groupby(positions, key=lambda position: position.name):
        yield from _from_one(name, [position.frame for position in some])
    yield frames.end(len(asked))


def _from_one(name: str, some: list[frames.Frame]) -> Iterator[bytes]:
    """Yield frames of one stored file.

    An incomplete one is reported before its frame begins, since later the stream can only break.
    """
    try:
        stored = files.open_file(name)
    except OSError:
        log.exception("the stored file %s cannot be read", name)
        yield from (frames.lost(frame.digest, why="cannot be read in the store") for frame in some)
        return
    with stored:
        size = stored.seek(0, 2)
        for frame in some:
            if frame.offset + frame.packed > size:
                yield frames.lost(frame.digest, why="is cut short in the store")
                continue
            stored.seek(frame.offset)
            yield frame.head()
            yield from frames.pieces_of(stored, frame.packed)


def _plain(position: FramePosition) -> bytes:
    try:
        with files.open_file(position.name) as stored:
            stored.seek(position.frame.offset)
            pieces = frames.pieces_of(stored, position.frame.packed)
            return b"".join(frames.plain(pieces, frame=position.frame))
    except (OSError, frames.BadPack) as error:
        log.exception("a file in %s cannot be read", position.name)
        raise DamagedStore("a file cannot be read from the store; inform the administrator") from error
