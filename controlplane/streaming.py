"""Answers of any length, piece by piece. Under ASGI Django would gather a synchronous iterator whole before sending it."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

PIECE_BYTES = 1 << 18


def streamed(request: HttpRequest, pieces: Iterable[str] | Iterable[bytes], kind: str) -> StreamingHttpResponse:
    """`pieces` is asked for the next one only when the one before was taken; between two it holds no connection."""
    content = _one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(content, content_type=kind)


def text_response(request: HttpRequest, pieces: Iterable[str]) -> StreamingHttpResponse:
    return streamed(request, pieces, "text/plain; charset=utf-8")


def gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Small pieces travel together: each step of a stream costs a hop to a thread."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


async def _one_by_one(given: Iterable[str] | Iterable[bytes]) -> AsyncIterator[Any]:
    pieces = iter(given)
    while (piece := await sync_to_async(_next, thread_sensitive=False)(pieces)) is not None:
        yield piece


def _next(pieces: Iterator[object]) -> object | None:
    try:
        return next(pieces, None)
    finally:
        if not connection.in_atomic_block:
            connection.close()
