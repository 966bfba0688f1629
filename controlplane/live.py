"""/live: server-sent hints to browsers, such as "the ranks of job 42 changed". See docs/architecture.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_safe

from accounts.access import Access
from accounts.permissions import readable_teams
from common.http.error_responses import refusal
from common.signals.hints import (
    HEARTBEAT_SECONDS,
    LIFETIME_SECONDS,
    RECHECK_WITHOUT_HINTS_SECONDS,
    RETRY_AFTER_SECONDS,
    SYNC_WITHOUT_HINTS_SECONDS,
    Listener,
    counted,
    listening,
    too_many,
)

GATHER_SECONDS = 0.25  # a browser gets hints at most this often


@require_safe
async def stream(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    access = await sync_to_async(_access)(request)
    if access is None:
        return HttpResponse(status=401)  # a browser's EventSource does not retry after this
    if words := too_many(access.user):
        return refusal(request, status=429, detail=words, retry_after=RETRY_AFTER_SECONDS)
    response = StreamingHttpResponse(events(access), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # nginx buffers streams unless this disables it
    return response


def _access(request: HttpRequest) -> Access | None:
    """Return the user's access to hints of their teams, or None if not signed in."""
    if not request.user.is_authenticated:
        return None
    teams = readable_teams(request.user)
    return Access.of(
        request.user, session=request.session.session_key, teams=None if teams is None else frozenset(teams)
    )


async def events(access: Access) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    over = loop.time() + LIFETIME_SECONDS
    listener = Listener(access.teams, access)
    async with counted(access.user), listening(listener) as hub:
        # If access ended between authentication and the subscription, no hint about it was received.
        listener.is_doubtful = True
        yield "retry: 2000\n\n"
        synced_at = loop.time()
        while loop.time() < over and await listener.may_go_on(hub):
            listener.wants_sync |= not hub.subscribed.is_set() and loop.time() - synced_at >= SYNC_WITHOUT_HINTS_SECONDS
            if listener.wants_sync:
                synced_at = loop.time()
            yield listener.take()
            await news(listener, within=HEARTBEAT_SECONDS if hub.subscribed.is_set() else RECHECK_WITHOUT_HINTS_SECONDS)


async def news(listener: Listener, *, within: float) -> None:
    """Wait until there is something to send or to check, or a heartbeat is due."""
    if not listener.is_doubtful:
        with suppress(TimeoutError):
            await asyncio.wait_for(listener.news.wait(), within)
    if listener.news.is_set() and not listener.is_doubtful:
        await asyncio.sleep(GATHER_SECONDS)  # later hints join the same message
