"""Turn files that a browser uploads into a workspace, the same way as those of the command line."""

import hashlib
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import IO, NamedTuple

from django.core.files.uploadedfile import UploadedFile

from accounts.models import Team, User
from accounts.permissions import Act, require
from common.errors import InvalidInput, Problem

from . import frames, services
from .manifest import EXECUTABLE, FILE, Entry, entry_problems
from .models import Workspace


class Packed(NamedTuple):
    entry: Entry
    frame: frames.Frame


def store_files(*, team: Team, by: User, files: "Iterable[tuple[str, UploadedFile[bytes]]]") -> Workspace:
    """Store the uploaded files under their paths. Raises InvalidInput naming a path that could leave the folder.

    A browser does not report whether a file is executable: scripts that begin with #! are made so.
    """
    require(by, Act.SUBMIT, team)
    with tempfile.TemporaryFile() as pack:
        pack.write(frames.MAGIC)
        packed = [_packed(path, file, into=pack) for path, file in files]
        pack.write(frames.end(len(packed)))
        _check([one.entry for one in packed])
        services.keep(team, [one.frame for one in packed], pack)
    return services.create(team=team, by=by, put=[one.entry for one in packed])[0]


def _packed(path: str, file: "UploadedFile[bytes]", *, into: IO[bytes]) -> Packed:
    digest, deflater = hashlib.sha256(), zlib.compressobj(6)
    begin, head, size = into.tell(), b"", 0
    into.seek(frames.HEAD.size, 1)
    for piece in file.chunks():
        digest.update(piece)
        into.write(deflater.compress(piece))
        head, size = head or piece[:2], size + len(piece)
    into.write(deflater.flush())
    end = into.tell()
    offset = begin + frames.HEAD.size
    frame = frames.Frame(digest.digest(), size, end - offset, True, offset)
    into.seek(begin)
    into.write(frame.head())
    into.seek(end)
    return Packed(Entry(path, EXECUTABLE if head == b"#!" else FILE, size, digest.hexdigest()), frame)


def _check(entries: list[Entry]) -> None:
    wrong = [(entry.path[:80], problem) for entry in entries for problem in entry_problems(entry, at="files")]
    problems = [Problem("files", path, f"{path} {problem.message}") for path, problem in wrong]
    twice = [path for path, count in Counter(entry.path for entry in entries).items() if count > 1]
    problems += [Problem("files", path, f"{path[:80]} appears twice; choose it once") for path in twice]
    if problems:
        raise InvalidInput(*problems[:5])
