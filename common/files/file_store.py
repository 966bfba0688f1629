"""What Muster asks of stored files beyond Django's storages, wherever they are: a folder, or a bucket (object_storage.py)."""

import errno
import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage
from django.utils.deconstruct import deconstructible
from django.utils.module_loading import import_string

Found = TypeVar("Found")


def read_slice(store: Storage, name: str, *, offset: int, size_bytes: int) -> bytes:
    """Return part of a file. Raises OSError."""
    if hasattr(store, "read_slice"):
        return cast(bytes, store.read_slice(name, offset=offset, size_bytes=size_bytes))
    with store.open(name, "rb") as file:
        file.seek(offset)
        return cast(bytes, file.read(size_bytes))


def touch(store: Storage, name: str) -> None:
    """Set a file's time to now. Raises OSError."""
    if hasattr(store, "touch"):
        store.touch(name)
    else:
        os.utime(store.path(name))


def folder_of(store: Storage) -> str:
    """Return the folder in which a store keeps its files; empty for one that is elsewhere."""
    return str(store.location) if isinstance(store, FileSystemStorage) else ""


def probe(store: Storage) -> None:
    """Raise OSError unless files can be written, read in part and deleted."""
    name = store.save(f"check/{secrets.token_hex(8)}", ContentFile(b"muster"))
    if read_slice(store, name, offset=1, size_bytes=4) != b"uste":
        raise OSError(errno.EIO, "returns something else than was stored")
    store.delete(name)


def made(entry: Mapping[str, Any]) -> Storage:
    """Return the storage of an entry of STORAGES."""
    return cast(Storage, import_string(entry["BACKEND"])(**entry.get("OPTIONS", {})))


@deconstructible
class MovingStorage(Storage):
    """Two storages while files move (MUSTER_OLD_FILES): written to the new one, read from the old one if they are still there.

    `new` and `old` are entries of STORAGES.
    """

    def __init__(self, *, new: Mapping[str, Any], old: Mapping[str, Any]):
        self.new, self.old = made(new), made(old)

    def read_slice(self, name: str, *, offset: int, size_bytes: int) -> bytes:
        return self._first(lambda store: read_slice(store, name, offset=offset, size_bytes=size_bytes))

    def touch(self, name: str) -> None:
        self._first(lambda store: touch(store, name))

    def exists(self, name: str) -> bool:
        return self.new.exists(name) or self.old.exists(name)

    def delete(self, name: str) -> None:
        """From the old one first: a file that is left in the new one is found again, and deleted the next time."""
        self.old.delete(name)
        self.new.delete(name)

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        folders: set[str] = set()
        files: set[str] = set()
        missing = 0
        for store in (self.new, self.old):
            try:
                some, others = store.listdir(path)
            except FileNotFoundError:
                missing += 1
                continue
            folders.update(some)
            files.update(others)
        if missing == 2:
            raise FileNotFoundError(errno.ENOENT, "is in neither store", path)
        return sorted(folders), sorted(files)

    def size(self, name: str) -> int:
        return self._first(lambda store: store.size(name))

    def get_modified_time(self, name: str) -> Any:
        return self._first(lambda store: store.get_modified_time(name))

    def save(self, name: str | None, content: Any, max_length: int | None = None) -> str:
        return self.new.save(name, content, max_length=max_length)

    def _open(self, name: str, mode: str = "rb") -> "File[Any]":
        return self._first(lambda store: store.open(name, mode))

    def _first(self, ask: Callable[[Storage], Found]) -> Found:
        try:
            return ask(self.new)
        except FileNotFoundError:
            return ask(self.old)
