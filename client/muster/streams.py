"""Answers that go on for long: a whole log as text, and a log as server-sent events. No I/O, no clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from muster.call import Call, get, given
from muster.calls import PATIENCE_SECONDS, no_job
from muster.models import LogPage

READ_SECONDS = 60.0  # the server says that it is still there more often


def log_text(job_id: int, *, rank: int | None = None, attempt: int | None = None) -> Call[Any]:
    call = get(f"/jobs/{job_id}/logs/text", parse=str, params=given(rank=rank, attempt=attempt), missing=no_job(job_id))
    return replace(call, headers={"Accept": "text/plain, application/problem+json"})


@dataclass
class EventReader:
    """The place in a stream. Open `call()`, hand each line to `take()`; open it again until `is_done`."""

    job_id: int
    rank: int | None = None
    attempt: int | None = None
    tail: int | None = None
    cursor: str | None = None
    is_done: bool = False
    kind: str = field(default="", repr=False)
    content: list[str] = field(default_factory=list, repr=False)

    def call(self) -> Call[Any]:
        self.kind, self.content = "", []
        tail = None if self.cursor else self.tail
        params = given(rank=self.rank, attempt=self.attempt, tail=tail, cursor=self.cursor)
        call = get(f"/jobs/{self.job_id}/logs/stream", parse=dict, params=params, missing=no_job(self.job_id))
        accepted = {"Accept": "text/event-stream, application/problem+json"}
        return replace(call, headers=accepted, wait_seconds=READ_SECONDS, patience_seconds=PATIENCE_SECONDS)

    def take(self, line: str) -> Iterator[LogPage]:
        """The page that an empty line ends. Only a whole event moves the cursor: one that was cut off comes again."""
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            self.kind = value
        elif name == "data":
            self.content.append(value)
        elif not line and self.kind in ("lines", "end"):
            yield from self._whole(LogPage.parse(json.loads("\n".join(self.content))))
        if not line:
            self.kind, self.content = "", []

    def _whole(self, page: LogPage) -> Iterator[LogPage]:
        self.cursor = page.cursor or self.cursor
        self.is_done = self.kind == "end"
        if page.lines and not self.is_done:  # `end` repeats the page that was the last
            yield page
