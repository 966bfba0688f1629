"""The files that hold the text of logs. If the store fails, agents wait for it, but not for ever."""

import time
import zlib
from collections.abc import Iterator
from contextlib import suppress

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from common import faultpoints
from common.files import file_store
from jobs.core.agent_identity import AgentIdentity
from jobs.models import LogSegment

PATIENCE_SECONDS = 30.0  # how long agents keep what a full store refuses; after that states go on and text is given up

MOST_REMEMBERED = 10_000


class Refusals:
    """Since when the store has refused a replica's text, on the monotonic clock.

    Per replica: a nearly full disk still takes small batches, which must not let the large ones of another replica wait
    for ever.
    """

    def __init__(self) -> None:
        self._since: dict[AgentIdentity, float] = {}

    def note(self, identity: AgentIdentity) -> float:
        """Note a refusal; return when the first of this replica was."""
        if len(self._since) >= MOST_REMEMBERED:
            self._since.clear()
        return self._since.setdefault(identity, time.monotonic())

    def end(self, identity: AgentIdentity) -> None:
        self._since.pop(identity, None)


refusals = Refusals()


class NoRoom(Exception):
    """The store refused the data. `is_patient`: it may accept it soon, so the agent must keep it and retry."""

    def __init__(self, text: str, *, is_patient: bool):
        super().__init__(text)
        self.is_patient = is_patient


def folder(run: str, attempt: int) -> str:
    return f"logs/{run}/{attempt}"


def save(identity: AgentIdentity, *, seq: int, data: bytes) -> str:
    """Store all segments of a batch as one file. Return its name. Raises NoRoom.

    The name includes a checksum of the content: different data sent under the same number never overwrites a file that
    a row refers to.
    """
    if not data:
        return ""
    where = folder(identity.run, identity.attempt)
    place = f"{identity.role}-{identity.index}" + (f".{identity.incarnation}" if identity.incarnation else "")
    path = f"{where}/{place}-{seq}-{zlib.crc32(data):08x}.z"
    try:
        with faultpoints.around("logs.save"):
            saved = default_storage.save(path, ContentFile(data))
    except OSError as error:
        discard(path)  # part of it may exist
        since = refusals.note(identity)
        is_patient = time.monotonic() - since < PATIENCE_SECONDS
        raise NoRoom(f"the log store takes nothing: {error.strerror or error}", is_patient=is_patient) from error
    refusals.end(identity)
    return saved


def read(path: str, *, offset: int, size_bytes: int) -> bytes:
    """Return a slice of a stored file. Raises OSError."""
    with faultpoints.around("logs.read"):
        return file_store.read_slice(default_storage, path, offset=offset, size_bytes=size_bytes)


def named() -> Iterator[str]:
    """Yield the names of all files that rows refer to, as the current transaction sees them."""
    paths = LogSegment.objects.exclude(path="").order_by().values_list("path", flat=True)
    yield from paths.distinct().iterator(chunk_size=10_000)


def touch(path: str) -> None:
    """Set a file's time to now."""
    with suppress(OSError):
        file_store.touch(default_storage, path)


def discard(path: str) -> None:
    with suppress(OSError), faultpoints.around("logs.delete"):
        default_storage.delete(path)
