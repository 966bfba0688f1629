"""Answers of any length, piece by piece. Under ASGI Django would gather a synchronous iterator whole before sending it."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse


def text_response(request: HttpRequest, pieces: Iterator[str]) -> StreamingHttpResponse:
    """`pieces` is asked for the next one only when the one before was taken; between two it holds no connection."""
    content = _one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(content, content_type="text/plain; charset=utf-8")


async def _one_by_one(pieces: Iterator[str]) -> AsyncIterator[str]:
    while (piece := await sync_to_async(_next, thread_sensitive=False)(pieces)) is not None:
        yield piece


def _next(pieces: Iterator[str]) -> str | None:
    try:
        return next(pieces, None)
    finally:
        if not connection.in_atomic_block:
            connection.close()
