"""Stream responses of any length in pieces.

Under ASGI Django would collect a synchronous iterator whole before sending it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError
from django.http import HttpRequest, StreamingHttpResponse

from ..db import db_connections

PIECE_BYTES = 1 << 18
MOST_OF_ONE = 2  # of the shared threads: so one user's reading delays others' streams and pages little
AWAY_SECONDS = 3.0  # after the database did not answer: streams do not queue up to wait for it one after the other

# Streams share a few threads of their own: while the database is away, they must not block the event loop's.
_threads = ThreadPoolExecutor(6, thread_name_prefix="streams")
_away_until = 0.0

# By event loop and user; an entry disappears with the user's last reader.
turns: WeakValueDictionary[tuple[int, int], asyncio.Semaphore] = WeakValueDictionary()

P = ParamSpec("P")
T = TypeVar("T")


async def aside(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that queries the database, for a stream, which holds no connection before or after.

    Raises OperationalError at once where another stream found the database away a moment ago.
    """
    if time.monotonic() < _away_until:
        raise OperationalError("the database did not respond a moment ago")
    return await sync_to_async(_aside, thread_sensitive=False, executor=_threads)(act, *args, **kwargs)


async def aside_for(user: int, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `aside`, for calls that may take long: one user's streams take turns at a few threads."""
    key = (id(asyncio.get_running_loop()), user)
    turn = turns.setdefault(key, asyncio.Semaphore(MOST_OF_ONE))
    async with turn:
        return await aside(act, *args, **kwargs)


def _aside(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    global _away_until
    try:
        return act(*args, **kwargs)
    except db_connections.AWAY:
        _away_until = time.monotonic() + AWAY_SECONDS
        raise
    finally:
        db_connections.give_back()


def streamed(
    request: HttpRequest, pieces: Iterable[str] | Iterable[bytes], kind: str, *, user: int | None = None
) -> StreamingHttpResponse:
    """Return a streaming response that takes the next of `pieces` only once the previous one was sent.

    Between two pieces it holds no connection. `user`: the user whose streams take turns; None for our own programs,
    which read what they were started with.
    """
    content = _one_by_one(pieces, user) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(content, content_type=kind)


def text_response(request: HttpRequest, pieces: Iterable[str]) -> StreamingHttpResponse:
    return streamed(request, pieces, "text/plain; charset=utf-8", user=request.user.pk)


def gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces into larger ones: each step of a stream costs a hop to a thread."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def _one_by_one(given: Iterable[str] | Iterable[bytes], user: int | None) -> AsyncIterator[Any]:
    pieces = iter(given)
    while (piece := await _next(pieces, user)) is not None:
        yield piece


async def _next(pieces: Iterator[Any], user: int | None) -> Any:
    return await (aside(next, pieces, None) if user is None else aside_for(user, next, pieces, None))
