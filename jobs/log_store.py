"""The files that hold the text of logs. A store that takes nothing is waited for, and not for ever."""

import time
import zlib
from contextlib import suppress

from django.core.files.base import ContentFile
from django.core.files.storage import storages

from .agent_tokens import AgentIdentity

PATIENCE_SECONDS = 30.0  # so long agents keep what a full store does not take; then states go on and text is given up

_refused_since: float | None = None  # of this process, on the monotonic clock


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
    global _refused_since
    if not data:
        return ""
    where = folder(identity.run, identity.attempt)
    path = f"{where}/{identity.role}-{identity.index}-{seq}-{zlib.crc32(data):08x}.z"
    try:
        saved: str = storages["logs"].save(path, ContentFile(data))
    except OSError as error:
        discard(path)  # half of it may be there
        _refused_since = _refused_since or time.monotonic()
        is_patient = time.monotonic() - _refused_since < PATIENCE_SECONDS
        raise NoRoom(f"the log store takes nothing: {error.strerror or error}", is_patient=is_patient) from error
    _refused_since = None
    return saved


def discard(path: str) -> None:
    with suppress(OSError):
        storages["logs"].delete(path)
