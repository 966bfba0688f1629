"""Long answers: a whole log as text, and a log as server-sent events. No I/O, no clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from muster.http.call import Call, get, given
from muster.http.model import Json
from muster.jobs.calls import PATIENCE_SECONDS, no_job

STREAM = "text/event-stream"
QUIET_SECONDS = 15.0  # on top of the usual timeout; the server sends a heartbeat at least this often


def log_text(
    job_id: int, *, rank: int | None = None, replica: str | None = None, attempt: int | None = None
) -> Call[Any]:
    call = get(
        f"/jobs/{job_id}/logs/text",
        parse=str,
        params=given(rank=rank, replica=replica, attempt=attempt),
        missing=no_job(job_id),
    )
    return replace(call, headers={"Accept": "text/plain, application/problem+json"})


def log_stream(job_id: int, *, cursor: str | None = None, **asked: int | str | None) -> Call[Any]:
    """Stream a log from `cursor` on; an unavailable server is waited for."""
    params = given(**asked, cursor=cursor)
    call = get(f"/jobs/{job_id}/logs/stream", parse=dict, params=params, missing=no_job(job_id))
    accepted = {"Accept": f"{STREAM}, application/problem+json"}
    return replace(call, headers=accepted, wait_seconds=QUIET_SECONDS, patience_seconds=PATIENCE_SECONDS)


@dataclass(frozen=True)
class StreamEvent:
    kind: str
    content: Json


@dataclass
class EventReader:
    """Turn lines of a stream into events. A cut-off event is dropped: a reopened stream sends it again, whole."""

    kind: str = ""
    content: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.kind, self.content = "", []

    def take(self, line: str) -> StreamEvent | None:
        """Return the event that an empty line completes."""
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            self.kind = value
        elif name == "data":
            self.content.append(value)
        return None if line else self._ended()

    def _ended(self) -> StreamEvent | None:
        kind, content = self.kind, self.content
        self.begin()
        return StreamEvent(kind, json.loads("\n".join(content))) if content else None
