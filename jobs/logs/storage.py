"""The files that hold the text of logs. A store that takes nothing is waited for, and not for ever."""

import time
import zlib
from contextlib import suppress

from django.core.files.base import ContentFile
from django.core.files.storage import storages

from common import faultpoints
from jobs.core.agent_identity import AgentIdentity

PATIENCE_SECONDS = 30.0  # so long agents keep what a full store does not take; then states go on and text is given up

MOST_REMEMBERED = 10_000

# Each replica for itself, on the monotonic clock: of a disk that is nearly full small batches are taken all the time, which
# must not let the large ones of another replica wait for ever.
_refused_since: dict[AgentIdentity, float] = {}


class NoRoom(Exception):
    """The store took nothing. `is_patient`: it may take it soon, so the agent shall keep it and come again."""

    def __init__(self, text: str, *, is_patient: bool):
        super().__init__(text)
        self.is_patient = is_patient


def folder(run: str, attempt: int) -> str:
    return f"logs/{run}/{attempt}"


def save(identity: AgentIdentity, *, seq: int, data: bytes) -> str:
    """All segments of a batch as one stored file; its name. Raises NoRoom.

    The name holds a sum of the content: what is sent again under the same number never overwrites what a row names.
    """
    if not data:
        return ""
    where = folder(identity.run, identity.attempt)
    place = f"{identity.role}-{identity.index}" + (f".{identity.incarnation}" if identity.incarnation else "")
    path = f"{where}/{place}-{seq}-{zlib.crc32(data):08x}.z"
    try:
        with faultpoints.around("logs.save"):
            saved: str = storages["logs"].save(path, ContentFile(data))
    except OSError as error:
        discard(path)  # half of it may be there
        since = _first_refused(identity)
        is_patient = time.monotonic() - since < PATIENCE_SECONDS
        raise NoRoom(f"the log store takes nothing: {error.strerror or error}", is_patient=is_patient) from error
    _refused_since.pop(identity, None)
    return saved


def _first_refused(identity: AgentIdentity) -> float:
    if len(_refused_since) >= MOST_REMEMBERED:
        _refused_since.clear()
    return _refused_since.setdefault(identity, time.monotonic())


def read(path: str, *, offset: int, size_bytes: int) -> bytes:
    """A slice of a stored file. Raises OSError."""
    with faultpoints.around("logs.read"), storages["logs"].open(path, "rb") as file:
        file.seek(offset)
        found: bytes = file.read(size_bytes)
    return found


def discard(path: str) -> None:
    with suppress(OSError), faultpoints.around("logs.delete"):
        storages["logs"].delete(path)
