"""How much a request may bring: bytes of its body, of its address, of its headers. On every route.

Two halves, because Django's ASGI handler reads a whole body to disk before any middleware runs. `Bounded` sits before
Django, counts what arrives (whether it was announced or comes in chunks), and cuts it off at the limit. `Limits` sits
in Django and turns the cut-off request away in the words of the place it was sent to.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from jobs.batches import MAX_BATCH_BYTES
from workspaces.parsers import MAX_JSON_BYTES

from .refusals import refusal
from .security import METHODS

MIB = 2**20
MAX_DIGESTS_BYTES = (
    100_000 * 32
)  # an agent names the files that it lacks: one of a workspace's most files, 32 bytes each
ADDRESS_CHARACTERS = 8192
HEADER_BYTES = 32 * 1024
HOST_CHARACTERS = 255  # RFC 1035; nobody's address is longer
SMALL = MIB
TINY = 16 * 1024
MARK = "muster.too_large"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI


@dataclass(frozen=True)
class Larger:
    """Addresses whose bodies may be larger (or must be smaller) than the usual; `needs_identity`: not for anybody."""

    path: re.Pattern[str]
    most: Callable[[], int]
    needs_identity: bool = True


# A form's fields, or a manifest, come on top of the packed folder itself.
_FOLDER = lambda: settings.MUSTER_MAX_WORKSPACE_BYTES + 2 * MIB  # noqa: E731 - read late, so that a setting counts
LARGER = (
    Larger(re.compile(r"/jobs/new$"), _FOLDER),
    Larger(re.compile(r"/api/v1/workspaces(/missing)?$"), lambda: MAX_JSON_BYTES),
    Larger(re.compile(r"/api/v1/workspaces/files$"), _FOLDER),
    Larger(re.compile(r"/agent/v1/workspace$"), lambda: MAX_DIGESTS_BYTES),
    Larger(re.compile(r"/agent/v1/batches$"), lambda: MAX_BATCH_BYTES),
    Larger(re.compile(r"/((api/v1/)?login|login/code)$"), lambda: TINY, needs_identity=False),
)


def most_bytes(path: str, *, has_identity: bool = True) -> int:
    """The largest body for this path. Who brings neither token nor cookie fills no disk."""
    for one in LARGER:
        if one.path.match(path):
            return one.most() if has_identity or not one.needs_identity else min(SMALL, one.most())
    return SMALL


class Bounded:
    """An ASGI application in front of another: what is too large never gets in."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = dict(scope["headers"])
        has_identity = b"authorization" in headers or b"cookie" in headers
        most = most_bytes(scope["path"], has_identity=has_identity)
        is_known = _announced(headers.get(b"content-length", b"")) > most
        return await self.app(scope, _cut(scope, receive, most=0 if is_known else most, is_cut=is_known), send)


def _announced(text: bytes) -> int:
    return int(text) if text.isdigit() else 0


def _cut(scope: MutableMapping[str, Any], receive: Receive, *, most: int, is_cut: bool) -> Receive:
    """`receive` that ends the body once more than `most` bytes came, and leaves a mark that it did."""
    left, has_ended = most, is_cut
    if is_cut:
        scope[MARK] = True

    async def bounded() -> Message:
        nonlocal left, has_ended, is_cut
        if is_cut:
            is_cut = False
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await receive()
        while has_ended and message["type"] == "http.request":  # the rest, unread
            message = await receive()
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            if left < 0:
                scope[MARK] = has_ended = True
                return {"type": "http.request", "body": b"", "more_body": False}
        return message

    return bounded


class Limits:
    """Turns away what is too large, too long or of an unknown method, before anything else looks at it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refused(request) or self.get_response(request)


def _refused(request: HttpRequest) -> HttpResponse | None:
    if request.method not in METHODS:
        return refusal(request, status=405, detail=f"use one of {', '.join(sorted(METHODS))}")
    if len(request.META.get("HTTP_HOST", "")) > HOST_CHARACTERS:
        return refusal(request, status=400, detail=f"the Host header has at most {HOST_CHARACTERS} characters")
    if len(request.get_full_path()) > ADDRESS_CHARACTERS:
        detail = f"an address has at most {ADDRESS_CHARACTERS} characters; send long values in the body"
        return refusal(request, status=414, detail=detail)
    if sum(len(name) + len(value) for name, value in request.headers.items()) > HEADER_BYTES:
        return refusal(request, status=431, detail=f"headers have at most {HEADER_BYTES} bytes together")
    return _too_large(request)


def _too_large(request: HttpRequest) -> HttpResponse | None:
    most = most_bytes(request.path_info)
    is_cut = getattr(request, "scope", {}).get(MARK, False)
    if not is_cut and _announced(request.META.get("CONTENT_LENGTH", "").encode()) <= most:
        return None
    answer = refusal(request, status=413, detail=f"a body sent here has at most {most} bytes; send less")
    answer["Connection"] = "close"  # the rest of it is not wanted
    return answer
