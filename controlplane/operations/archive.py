"""The file that `muster-server backup` writes: a tar archive, written and read in one pass, so that it can be a pipe.

about.json              what it is: release, time, migrations, tables with their columns, sequences
keys.json               the secret key and the older ones; missing if the backup was made without
tables/NAME/000001      rows as Postgres' COPY gives them as text, compressed with zlib; in pieces of some MB
files/NAME              a stored file under its name in the store
end.json                how many of each, and the SHA-256 of everything before: without it the archive is not whole
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NotRequired, Self, TypedDict

import msgspec

FORMAT = 1
ABOUT, KEYS, TABLES, FILES, END = "about.json", "keys.json", "tables/", "files/", "end.json"


class _About(TypedDict):
    format: int
    release: str
    at: str
    key: str
    old_keys: NotRequired[list[str] | None]  # missing in what earlier releases wrote
    has_keys: NotRequired[bool]
    migrations: list[tuple[str, str]]
    tables: dict[str, list[str]]
    sequences: dict[str, tuple[str, int]]


class _Keys(TypedDict):
    secret_key: str
    old: NotRequired[list[str]]


class _End(TypedDict):
    rows: dict[str, int]
    files: int
    missing: list[Any]
    sha256: str


# What tarfile and json raise for bytes that no program of ours wrote.
_MALFORMED = (tarfile.TarError, OSError, EOFError, ValueError, KeyError, IndexError, OverflowError, RecursionError)


class BadArchive(Exception):
    """Why nothing can be restored from this, and the way out, in one line."""


class Writer:
    """Appends entries to `out`, which is only written to, from its beginning to its end. A context manager."""

    def __init__(self, out: IO[bytes]):
        self._tar = tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - ended by `end`
        self._sum = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, ValueError):  # what could not be written is why the block ended
            self._tar.close()

    def put_json(self, name: str, content: Any) -> None:
        self.put(name, json.dumps(content).encode())

    def put(self, name: str, data: bytes) -> None:
        self.put_file(name, io.BytesIO(data), size=len(data))

    def put_file(self, name: str, source: IO[bytes], *, size: int) -> None:
        """Copy `size` bytes of `source`. Raises OSError if it has fewer: the archive cannot be continued then."""
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o600
        self._sum.update(f"{name}\n{size}\n".encode())
        self._tar.addfile(entry, _Summed(source, self._sum))
        _forget(self._tar)

    def end(self, **counts: Any) -> None:
        self.put_json(END, {**counts, "sha256": self._sum.hexdigest()})
        self._tar.close()  # writes the rest, and may fail


@dataclass
class ArchiveEntry:
    name: str
    size: int
    content: IO[bytes]


@dataclass
class Reader:
    """Reads an archive from a stream. `about` and `keys` are there at once, the rest is yielded by `entries`."""

    source: IO[bytes]
    about: dict[str, Any] = field(init=False)
    keys: dict[str, Any] = field(init=False, default_factory=dict)
    counts: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._sum = hashlib.sha256()
        try:
            self._tar = tarfile.open(fileobj=self.source, mode="r|")  # noqa: SIM115 - read to its end by `entries`
            self._entries = self._read()
            self.about = self._json(next(self._entries, None), ABOUT)
            if (found := self.about.get("format")) != FORMAT:
                raise BadArchive(f"its format is {found}; this release reads {FORMAT}: restore with a newer one")
            _check(self.about, _About, ABOUT)
            if self.about.get("has_keys"):
                self.keys = _check(self._json(next(self._entries, None), KEYS), _Keys, KEYS)
        except _MALFORMED as error:
            raise BadArchive(f"this is no backup of Muster: {error}") from error

    @property
    def secret_key(self) -> str:
        """Return the installation's secret key. Raises BadArchive if the backup was made without."""
        if not self.keys:
            raise BadArchive("the backup was made without its secret key")
        return str(self.keys["secret_key"])

    @property
    def old_secret_keys(self) -> list[str]:
        """Return earlier keys, which values may still be sealed with. Raises BadArchive as `secret_key` does."""
        if not self.keys:
            raise BadArchive("the backup was made without its secret keys")
        return [str(one) for one in self.keys.get("old", [])]

    def entries(self) -> Iterator[ArchiveEntry]:
        """Yield the rest in order; each is to be read before the next. Raises BadArchive for one that is not whole."""
        try:
            yield from self._entries
        except _MALFORMED as error:
            raise _cut_off(error) from error
        if not self.counts:
            raise BadArchive("the archive was cut off: its end is missing")

    def _read(self) -> Iterator[ArchiveEntry]:
        for one in self._tar:
            content = self._tar.extractfile(one) if one.isreg() else None
            if content is None:
                raise BadArchive(f"{one.name} is no file")
            if one.name == END:
                self._check_end(_check(_dict(content.read(), END), _End, END))
                return
            self._sum.update(f"{one.name}\n{one.size}\n".encode())
            _forget(self._tar)
            yield ArchiveEntry(one.name, one.size, _Summed(content, self._sum))  # type: ignore[arg-type]

    def _json(self, entry: ArchiveEntry | None, name: str) -> dict[str, Any]:
        if entry is None or entry.name != name:
            raise BadArchive(f"this is no backup of Muster: it has no {name}")
        return _dict(entry.content.read(), name)

    def _check_end(self, counts: dict[str, Any]) -> None:
        if counts.pop("sha256", "") != self._sum.hexdigest():
            raise BadArchive("the archive is damaged: its content does not match its checksum")
        self.counts = counts


def _dict(text: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadArchive(f"this is no backup of Muster: {name}: {error}") from error
    if not isinstance(found, dict):
        raise BadArchive(f"this is no backup of Muster: {name} holds no object")
    return found


def _check(found: dict[str, Any], shape: Any, name: str) -> dict[str, Any]:
    """Return what was found. Raises BadArchive, naming the field that is missing or of another kind."""
    try:
        msgspec.convert(found, type=shape)
    except msgspec.ValidationError as error:
        raise BadArchive(f"this is no backup of Muster: {name}: {error}") from error
    return found


def _forget(tar: Any) -> None:
    """Drop the list of all entries so far: nobody asks for it, and there may be millions."""
    tar.members.clear()


def _cut_off(error: Exception) -> BadArchive:
    return BadArchive(f"the archive is damaged or was cut off: {error}")


class _Summed(io.RawIOBase):
    """Content of one entry on its way: whatever is read of it is summed up."""

    def __init__(self, content: IO[bytes], total: Any):
        self._content, self._sum = content, total

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._content.read(size)
        except tarfile.TarError as error:
            raise _cut_off(error) from error
        self._sum.update(data)
        return data
