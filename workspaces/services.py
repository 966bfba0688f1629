"""Storing a packed folder: once per team and content. The server never unpacks it."""

import hashlib
from typing import IO

from django.conf import settings
from django.core.files import File
from django.core.files.base import ContentFile
from django.db import IntegrityError

from accounts.models import Team, User
from accounts.permissions import Act, require
from controlplane import crash
from controlplane.errors import InvalidInput, Problem

from .models import Workspace

GZIP_MAGIC = b"\x1f\x8b"


def store(*, team: Team, by: User, stream: IO[bytes], digest: str = "") -> tuple[Workspace, bool]:
    """Keep the packed folder in `stream`; returns the row, and False when the team had it already.

    Raises InvalidInput when it is too large, no gzip, or not what `digest` (sha256, hex) says.
    """
    require(by, Act.SUBMIT, team)
    data = _read(stream)
    found = hashlib.sha256(data).hexdigest()
    if digest and digest.lower() != found:
        raise InvalidInput(Problem("X-Muster-Digest", digest, "does not match the bytes received; send them again"))
    earlier = Workspace.objects.filter(team=team, digest=found).first()
    if earlier is not None:
        return earlier, False
    try:
        with crash.atomic("workspaces.store"):
            return _insert(team, by, data, found), True
    except IntegrityError:  # somebody sent the same a moment earlier
        return Workspace.objects.get(team=team, digest=found), False


def _read(stream: IO[bytes]) -> bytes:
    most = settings.MUSTER_MAX_WORKSPACE_BYTES
    data = stream.read(most + 1)
    if len(data) > most:
        raise InvalidInput(
            Problem("body", len(data), f"a workspace has at most {most} bytes; list large files in .musterignore")
        )
    if data[:2] != GZIP_MAGIC:
        raise InvalidInput(Problem("body", data[:8].hex(), "is not gzip; pack the folder as tar.gz"))
    return data


def _insert(team: Team, by: User, data: bytes, digest: str) -> Workspace:
    row = Workspace(team=team, created_by=by, digest=digest, size_bytes=len(data))
    content: File[bytes] = ContentFile(data)
    with crash.around("workspaces.file"):
        row.file.save(f"{team.pk}-{digest}.tar.gz", content, save=False)
    row.save()
    return row
