"""A team's stored files: packs and manifests, through Django's storage API. Names are never reused."""

import io
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import IO, cast

from django.core.files import File
from django.core.files.storage import default_storage

from common import faultpoints
from common.errors import MusterError

from .models import Pack, Workspace

FOLDER = "workspaces"


class NotStored(MusterError):
    retry = True


def save(team: int, kind: str, content: IO[bytes]) -> str:
    """Store content; return its name. Raises NotStored when the disk is full or fails.

    `kind` is the file name's ending: pack or manifest.
    """
    content.seek(0)
    name = f"{FOLDER}/{team}/{secrets.token_hex(12)}.{kind}"
    try:
        with faultpoints.around("files.save"):
            return default_storage.save(name, File(content))
    except OSError as error:
        with suppress(OSError):
            delete(name)
        raise NotStored(f"the server cannot store files ({error.strerror}); inform its administrator") from error


def open_file(name: str) -> IO[bytes]:
    with faultpoints.around("files.open"):
        return cast(IO[bytes], default_storage.open(name, "rb"))


def delete(name: str) -> None:
    with faultpoints.around("files.delete"):
        default_storage.delete(name)


def pack_text(text: str) -> bytes:
    return zlib.compress(text.encode(), 6)


def save_packed(team: int, packed: bytes) -> str:
    return save(team, "manifest", io.BytesIO(packed))


def packed_text(name: str) -> bytes:
    """Return the text as stored: zlib."""
    with open_file(name) as file:
        return file.read()


def text(name: str) -> str:
    return zlib.decompress(packed_text(name)).decode()


def named() -> Iterator[str]:
    """Yield the names of all files that rows refer to, as the current transaction sees them."""
    yield from Pack.objects.order_by().values_list("name", flat=True).iterator(chunk_size=10_000)
    manifests = Workspace.objects.exclude(manifest="").order_by().values_list("manifest", flat=True)
    yield from manifests.distinct().iterator(chunk_size=10_000)


def listed() -> Iterator[tuple[str, datetime]]:
    """Yield every stored file and when it was written. A file deleted meanwhile is left out."""
    if not default_storage.exists(FOLDER):
        return
    folders, loose = default_storage.listdir(FOLDER)
    within = [f"{folder}/{name}" for folder in folders for name in default_storage.listdir(f"{FOLDER}/{folder}")[1]]
    for name in [*loose, *within]:
        try:
            yield f"{FOLDER}/{name}", default_storage.get_modified_time(f"{FOLDER}/{name}")
        except FileNotFoundError:
            continue
