"""How much a request may bring, and how slowly: bytes of its body, of its address, of its headers. On every route.

Two halves, because Django's ASGI handler reads a whole body to disk, and takes headers apart, before any middleware runs.
`Bounded` sits before Django, measures the headers, counts what arrives (whether it was announced or comes in chunks), and
cuts it off at the limit: of size, of time, and for more than a small body of who may send one at all. `Limits` sits
in Django and turns the cut-off request away in the words of the place it was sent to.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.utils.http import parse_header_parameters

from accounts.authentication import has_valid_token
from accounts.signin.session_list import has_valid_session
from common.error_responses import refusal
from common.errors import Problem
from common.middleware import ALIVE
from jobs.core.batch import MAX_BATCH_BYTES
from jobs.ingest.agent_tokens import bearer
from workspaces.parsers import MAX_JSON_BYTES

from .room import App, Message, Receive, Room, Send, session_key
from .security import METHODS

MIB = 2**20
MAX_DIGESTS_BYTES = (
    100_000 * 32
)  # an agent names the files that it lacks: one of a workspace's most files, 32 bytes each
ADDRESS_CHARACTERS = 8192
HEADER_BYTES = 32 * 1024
# Django and DRF take these apart in time that grows with the square of their length. Real ones are shorter by far.
HEADERS_BYTES = {b"content-type": 256, b"accept": 1024}
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
NEEDED_TO_REFUSE = (b"host", b"hx-request", b"x-forwarded-proto")
HOST_CHARACTERS = 255  # RFC 1035; nobody's address is longer
SMALL = MIB
TINY = 16 * 1024
NUL = "holds a NUL character, which no name or text has; leave it out"
SHOWN_CHARACTERS = 200
MARK = "muster.refused"  # in the scope: the status with which a head or body was cut off
WORDS = "muster.refused_words"  # in the scope: the same in words, where the status does not say enough
BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 32 * 1024  # what a body must bring in the long run; 256 MiB may take two hours
IDENTITY_THREADS = 2  # they ask the database: strangers who bring large bodies take no more of its connections

Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class Larger:
    """Addresses whose bodies may be larger (or must be smaller) than the usual; `needs_identity`: not for anybody."""

    path: re.Pattern[str]
    most: Callable[[], int]
    needs_identity: bool = True


# A form's fields, or a manifest, come on top of the packed folder itself.
_FOLDER = lambda: settings.MUSTER_MAX_WORKSPACE_BYTES + 2 * MIB  # noqa: E731 - read late, so that a setting counts
LARGER = (
    Larger(re.compile(r"/jobs/new\Z"), _FOLDER),
    Larger(re.compile(r"/api/v1/workspaces(/missing)?\Z"), lambda: MAX_JSON_BYTES),
    Larger(re.compile(r"/api/v1/workspaces/files\Z"), _FOLDER),
    Larger(re.compile(r"/agent/v1/workspace\Z"), lambda: MAX_DIGESTS_BYTES),
    Larger(re.compile(r"/agent/v1/batches\Z"), lambda: MAX_BATCH_BYTES),
    Larger(re.compile(r"/((api/v1/)?login|login/code|account/password)\Z"), lambda: TINY, needs_identity=False),
)


def most_bytes(path: str, *, has_identity: bool = True) -> int:
    """The largest body for this path. Who brings neither token nor cookie fills no disk."""
    for one in LARGER:
        if one.path.match(path):
            return one.most() if has_identity or not one.needs_identity else min(SMALL, one.most())
    return SMALL


class Bounded:
    """An ASGI application in front of another: what is too large, too slow or a stranger's never gets in."""

    def __init__(self, app: App):
        self.app = app
        self.threads = ThreadPoolExecutor(IDENTITY_THREADS, thread_name_prefix="identity")
        self.room = Room()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, words = 431, head_complaint(scope["headers"])
        if not words:
            status, words = 400, accept_complaint(scope["headers"]) or type_complaint(scope["headers"])
        if words:
            # Django never sees the headers that it would take apart; the words need a few of the others.
            scope["headers"], scope[MARK], scope[WORDS] = _needed_to_refuse(scope["headers"]), status, words
        has_identity = any(name in (b"authorization", b"cookie") for name, _ in scope["headers"])
        scope["headers"] = with_our_cookies(scope["headers"])
        headers = dict(scope["headers"])
        most = most_bytes(scope["path"], has_identity=has_identity)
        announced = _announced(headers.get(b"content-length", b""))

        async def is_known() -> bool:
            asked = (scope["path"], headers.get(b"authorization", b""), headers.get(b"cookie", b""))
            return await asyncio.get_running_loop().run_in_executor(self.threads, _is_known, *asked)

        intake = Intake(scope, receive, is_known, most=most, announced=announced)
        if scope["path"] == ALIVE:  # answers whoever else fills the room
            await self.app(scope, intake, send)
        else:
            await self.room.inside(self.app, scope, intake, send)


class Intake:
    """`receive` that ends a body early where it has to, and leaves the status of the refusal in the scope.

    The first MiB is read of anybody; for more the sender must be known. Asked once, and before any byte is read where the
    length was announced.
    """

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        is_known: Callable[[], Awaitable[bool]],
        *,
        most: int,
        announced: int,
    ):
        self.scope, self.receive, self.is_known = scope, receive, is_known
        self.most, self.announced = most, announced
        self.taken, self.began = 0, asyncio.get_running_loop().time()
        self.has_begun = self.has_ended = self.is_checked = False

    async def __call__(self) -> Message:
        if self.has_ended:
            return await self._rest()
        if not self.has_begun:
            self.has_begun = True
            if self.scope.get(MARK):
                return self._end(self.scope[MARK])
            if status := await self._objection(self.announced):
                return self._end(status)
        try:
            async with asyncio.timeout(seconds_left(self.taken, self._elapsed())):
                message = await self.receive()
        except TimeoutError:
            return self._end(408)
        if message["type"] != "http.request":
            return message
        self.taken += len(message.get("body", b""))
        if status := await self._objection(self.taken):
            return self._end(status)
        self.has_ended = not message.get("more_body", False)
        return message

    async def _objection(self, size: int) -> int:
        """The status that a body of this size is refused with; 0 for none."""
        if size > self.most:
            return 413
        if size <= SMALL or self.is_checked:
            return 0
        self.is_checked = True
        try:
            return 0 if await self.is_known() else 401
        except DatabaseError:
            return 503

    def _end(self, status: int) -> Message:
        self.scope[MARK], self.has_ended = status, True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _rest(self) -> Message:
        """What follows the end is that the sender went away; what else it sends is not kept."""
        while (message := await self.receive())["type"] == "http.request":
            pass
        return message

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self.began


def head_complaint(headers: Iterable[Header]) -> str:
    """What is too long in these headers; "" for nothing. Linear in their bytes. Pure."""
    whole, lengths = 0, Counter[bytes]()
    for name, value in headers:
        whole += len(name) + len(value)
        lengths[name] += len(value)
    if whole > HEADER_BYTES:
        return f"headers have at most {HEADER_BYTES} bytes together"
    for name, most in HEADERS_BYTES.items():
        if lengths[name] > most:
            return f"the {name.decode().title()} header has at most {most} bytes; send a shorter one"
    return ""


def type_complaint(headers: Iterable[Header]) -> str:
    """Why Django could not read this Content-Type, or would read the body in another encoding; "" where it can. Pure.

    Forms in an encoding like unicode_escape bring NUL and halves of characters past every check of the text as it was sent.
    """
    values = [value for name, value in headers if name == b"content-type"]
    if len(values) > 1:  # Django joins them to one, which none of them is
        return "there is more than one Content-Type header; send one"
    for value in values:
        try:
            _, parameters = parse_header_parameters(value.decode("latin-1"))
        except Exception:  # whatever it is: Django raises the same where nobody turns it into an answer
            return "the Content-Type header cannot be read; write it as type/subtype; name=value"
        if parameters.get("charset", "utf-8").lower() not in CHARSETS:
            return f"the Content-Type header names the charset {parameters['charset'][:40]!r}; send UTF-8"
    return ""


def accept_complaint(headers: Iterable[Header]) -> str:
    """Why DRF could not read this Accept: a type's parameters in several parts, or in a charset of their own. Pure."""
    types = (one for name, value in headers if name == b"accept" for one in value.split(b","))
    is_odd = any(b"*" in one.partition(b";")[2] for one in types)
    return "the Accept header cannot be read; write types as type/subtype; q=0.5" if is_odd else ""


def with_our_cookies(headers: Iterable[Header]) -> list[Header]:
    """Of the cookies those that Muster sets: other applications of the host send theirs along, in any shape. Pure.

    Ours have no backslash. Python takes a quoted value with backslashes apart in time that grows with the square of it.
    """
    known = (settings.SESSION_COOKIE_NAME.encode(), settings.CSRF_COOKIE_NAME.encode())
    kept: list[Header] = []
    for name, value in headers:
        if name != b"cookie":
            kept.append((name, value))
            continue
        ours = [one for one in value.split(b";") if one.partition(b"=")[0].strip() in known and b"\\" not in one]
        if ours:
            kept.append((name, b";".join(ours)))
    return kept


def _needed_to_refuse(headers: Iterable[Header]) -> list[Header]:
    return list({name: (name, value) for name, value in headers if name in NEEDED_TO_REFUSE}.values())


def seconds_left(taken: int, elapsed: float) -> float:
    """How long the next piece may take. A body has a while, and more the more of it is there. Pure."""
    return max(BODY_SECONDS + taken / BODY_BYTES_PER_SECOND - elapsed, 0.0)


def _announced(text: bytes) -> int:
    return int(text) if text.isdigit() else 0


def _is_known(path: str, authorization: bytes, cookie: bytes) -> bool:
    """Does this come from an agent, a token or a session of ours? Whether they may do it is asked later, as ever."""
    said = authorization.decode("latin-1")
    if path.startswith("/agent/"):
        return bearer(said) is not None
    try:
        if path.startswith("/api/") and said:
            return has_valid_token(said)
        session = session_key(cookie)
        return bool(session) and has_valid_session(session)
    finally:
        if not connection.in_atomic_block:
            connection.close()  # to the pool: nothing else would in this thread


class Limits:
    """Turns away what is too large, too long or of an unknown method, before anything else looks at it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refused(request) or self.get_response(request)


def _refused(request: HttpRequest) -> HttpResponse | None:
    if getattr(request, "scope", {}).get(MARK) in (400, 431):
        return _too_large(request)  # what was kept of such a request says nothing else about it
    if request.method not in METHODS:
        return refusal(request, status=405, detail=f"use one of {', '.join(sorted(METHODS))}")
    if len(request.META.get("HTTP_HOST", "")) > HOST_CHARACTERS:
        return refusal(request, status=400, detail=f"the Host header has at most {HOST_CHARACTERS} characters")
    if problem := _holding_nul(request):
        return refusal(request, status=400, detail=str(problem), problem=problem)
    if len(request.get_full_path()) > ADDRESS_CHARACTERS:
        detail = f"an address has at most {ADDRESS_CHARACTERS} characters; send long values in the body"
        return refusal(request, status=414, detail=detail)
    return _too_large(request)


def _holding_nul(request: HttpRequest) -> Problem | None:
    """The parameter, or the path, in which no name or text of ours can be: Postgres has no NUL."""
    if "\0" in request.path_info:
        return Problem("path", request.path_info[:SHOWN_CHARACTERS], NUL)
    if "%00" not in request.META.get("QUERY_STRING", ""):
        return None
    pairs = ((name, value) for name, values in request.GET.lists() for value in values)
    found = next(((name, value) for name, value in pairs if "\0" in name + value), None)
    return Problem(found[0][:SHOWN_CHARACTERS], found[1][:SHOWN_CHARACTERS], NUL) if found else None


def _too_large(request: HttpRequest) -> HttpResponse | None:
    most = most_bytes(request.path_info)
    status: int = getattr(request, "scope", {}).get(MARK, 0)
    if not status and _announced(request.META.get("CONTENT_LENGTH", "").encode()) > most:
        status = 413
    if not status:
        return None
    details = {
        401: f"a body of more than {SMALL} bytes is read only of who is signed in; show a valid token or session",
        408: f"the body came too slowly; send at least {BODY_BYTES_PER_SECOND} bytes a second",
        413: f"a body sent here has at most {most} bytes; send less",
        503: "the database does not answer; try again in a moment",
    }
    detail = getattr(request, "scope", {}).get(WORDS) or details[status]
    answer = refusal(request, status=status, detail=detail, retry_after=2 if status == 503 else 0)
    if status == 401:
        answer["WWW-Authenticate"] = "Bearer"
    answer["Connection"] = "close"  # the rest of it is not wanted
    return answer
