"""A job's log as it grows: a stream of server-sent events, or one page that waits for its first line.

Waiting is a coroutine: it takes no thread and no database connection.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.exceptions import Throttled
from rest_framework.renderers import JSONRenderer

from accounts.access import Access
from common.db.db_connections import AWAY
from common.http.streaming import aside_for
from common.signals import hints
from jobs.core.cursor import decode
from jobs.logs import reader, search
from jobs.models import Job

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.5  # lines that arrive meanwhile are sent together
LOOK_SECONDS = 15.0  # poll interval without any hint; while Redis is down there are none, so the next one applies
LOOK_WITHOUT_HINTS_SECONDS = 2.0
# Page size for a reader that is behind: each page unpacks its segments whole, so small pages of large segments are
# slow.
BEHIND_LINES = 5000
STILL_HERE = ": still here\n\n"


class EventStreamRenderer(JSONRenderer):
    """Declares that this media type is served; what it renders itself are errors."""

    media_type = "text/event-stream"
    format = "stream"


class TextRenderer(JSONRenderer):
    """The same for a log as plain text."""

    media_type = "text/plain"
    format = "text"


def following(job: Job, *, access: Access, cursor: str, **asked: Any) -> StreamingHttpResponse:
    """Return the stream. Raises InvalidInput for a malformed cursor, while there is still a status to answer with."""
    if cursor:
        decode(cursor)
    _refuse_too_many(access.user)
    asked = {"limit": BEHIND_LINES, **asked, "cursor": cursor}
    response = StreamingHttpResponse(events(job.pk, access, asked), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # nginx buffers streams unless this disables it
    return response


def held(job: Job, *, access: Access, page: reader.LogPage, wait: float, **asked: Any) -> StreamingHttpResponse:
    """Return the answer to `logs?wait=`: an empty page waits for new lines or until `wait` seconds are over."""
    _refuse_too_many(access.user)
    return StreamingHttpResponse(_held(job.pk, access, asked, page=page, wait=wait), content_type="application/json")


def _refuse_too_many(user: int) -> None:
    if words := hints.too_many(user):
        raise Throttled(wait=hints.RETRY_AFTER_SECONDS, detail=words)


async def events(job: int, access: Access, asked: dict[str, Any]) -> AsyncIterator[str]:
    """Yield the stream's text: phases and lines as they come, until the job ends or its lifetime is over."""
    over = asyncio.get_running_loop().time() + hints.LIFETIME_SECONDS
    listener = hints.Listener(access.teams, access)
    async with hints.counted(access.user), hints.listening(listener) as hub:
        yield "retry: 2000\n\n"
        shown: dict[str, str] | None = None
        listener.is_doubtful = True  # for what changed before it listened
        while asyncio.get_running_loop().time() < over and await listener.may_go_on(hub):
            listener.forget()
            try:
                phase, page = await aside_for(access.user, _read, job, asked)
            except AWAY as error:  # the reader reconnects with its cursor
                log.warning("the log stream of job %s ends, the database is away: %s", job, error)
                return
            asked["cursor"] = page.cursor
            if phase != shown:
                yield f"event: phase\ndata: {json.dumps(phase)}\n\n"
            if page.lines or shown is None:  # the first one even if it is empty: a reader may begin at the end
                yield _event("lines", page)
            shown = phase
            if page.is_complete:
                yield _event("end", page)
                return
            if page.has_more:
                continue  # a reader of the whole log does not wait before its end
            if await listener.hears_of(job, _within(hub)):
                await asyncio.sleep(0 if listener.is_doubtful else GATHER_SECONDS)
            else:
                yield STILL_HERE


async def _held(
    job: int, access: Access, asked: dict[str, Any], *, page: reader.LogPage, wait: float
) -> AsyncIterator[bytes]:
    """Yield one piece: the page as JSON. Whatever happens meanwhile, the reader can continue from the answer."""
    now = asyncio.get_running_loop().time
    until = now() + wait
    listener = hints.Listener(access.teams, access)
    async with hints.counted(access.user), hints.listening(listener) as hub:
        listener.is_doubtful = True
        while not page.lines and not page.is_complete and await listener.may_go_on(hub):
            listener.forget()
            try:
                _, page = await aside_for(access.user, _read, job, {**asked, "cursor": page.cursor})
            except AWAY as error:
                log.warning("a wait for lines of job %s ends, the database is away: %s", job, error)
                break
            left = until - now()
            if page.lines or page.is_complete or left <= 0:
                break
            if await listener.hears_of(job, min(left, _within(hub))):
                await asyncio.sleep(min(GATHER_SECONDS, max(0, until - now())))
    yield JSONRenderer().render(log_page(page))


def _within(hub: hints.Hub) -> float:
    return LOOK_SECONDS if hub.subscribed.is_set() else LOOK_WITHOUT_HINTS_SECONDS


def _read(job: int, asked: dict[str, Any]) -> tuple[dict[str, str], reader.LogPage]:
    """Return the job's phase, and the lines that existed when it was read."""
    seen = Job.objects.get(pk=job)
    phase = {"phase": seen.phase, "message": seen.current_message}
    return phase, reader.read(job=seen, **asked)


def _event(kind: str, page: reader.LogPage) -> str:
    return f"event: {kind}\nid: {page.cursor}\ndata: {json.dumps(log_page(page))}\n\n"


def log_page(page: reader.LogPage) -> dict[str, Any]:
    """Return the JSON of a page, for `GET logs` and for events."""
    return {"lines": [_line(one) for one in page.lines], "cursor": page.cursor, "is_complete": page.is_complete}


def found_lines(found: search.SearchResult) -> dict[str, Any]:
    return {"lines": [{**_line(line), "number": number} for number, line in found.lines], "next": found.next}


def _line(line: reader.LogLine) -> dict[str, Any]:
    return {
        "rank": line.rank,
        "replica": line.replica,
        "attempt": line.attempt,
        "at_ms": int(line.at.timestamp() * 1000),
        "text": line.text,
        "is_gap": line.is_gap,
    }
