"""Limit each request's body, address and headers in size, and how slowly the body may arrive. On every route.

Two halves, because Django's ASGI handler reads a whole body to disk, and parses headers, before any middleware runs.
`Bounded` sits before Django, measures the headers, counts what arrives (announced or chunked), and cuts it off at the
limit: of size, of time, and, beyond a small body, for senders without valid credentials. `Limits` sits in Django and
answers the cut-off request in the format of the route it was sent to.
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

from accounts.authentication import user_of_token
from accounts.permissions import teams_where
from accounts.roles import Act
from accounts.signin.session_list import user_of_session
from common.errors import Problem
from common.http.error_responses import refusal
from common.http.middleware import ALIVE
from workspaces.parsers import MAX_JSON_BYTES

from .room import App, Message, Receive, Room, Send, agent_sender, session_key
from .security import METHODS

MIB = 2**20
MAX_DIGESTS_BYTES = (
    100_000 * 32
)  # digests of the files that an agent lacks: at most a workspace's 100,000, 32 bytes each
ADDRESS_CHARACTERS = 8192
HEADER_BYTES = 32 * 1024
# Django and DRF parse these in time quadratic in their length. Real ones are far shorter.
# A length of thousands of digits, zeros in front, is none that Python reads as a number.
HEADERS_BYTES = {b"content-type": 256, b"accept": 1024, b"content-length": 100}
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
NEEDED_TO_REFUSE = (b"host", b"hx-request", b"x-forwarded-proto")
HOST_CHARACTERS = 255  # RFC 1035; no valid host name is longer
SMALL = MIB
TINY = 16 * 1024  # of senders without valid credentials
FORM_BYTES = 128 * 1024  # of a form without files: decoding a MiB of percent signs takes a second of a core
NUL = "contains a NUL character, which no name or text may; remove it"
SHOWN_CHARACTERS = 200
MARK = "muster.refused"  # scope key: the status with which a head or body was cut off
WORDS = "muster.refused_words"  # scope key: the message, where the status alone is not enough
BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 32 * 1024  # a body's minimum rate in the long run; 256 MiB may take two hours
IDENTITY_THREADS = 2  # they query the database: unauthenticated uploads take no more of its connections
CHECK_SECONDS = 5.0  # how often a sender is checked again while its body arrives: a token may be revoked meanwhile
FOLDERS_AT_ONCE = 4  # of the largest size: what the unfinished bodies of one sender may take together

Header = tuple[bytes, bytes]


@dataclass(frozen=True)
class Larger:
    """Paths with larger (or smaller) body limits than usual; `act`: what the sender may do in one team at least."""

    path: re.Pattern[str]
    most: Callable[[], int]
    act: Act = Act.READ


def _folder_bytes() -> int:
    """Return the largest packed folder with a form's fields, or a manifest, on top of it."""
    return int(settings.MUSTER_MAX_WORKSPACE_BYTES) + 2 * MIB


LARGER = (
    Larger(re.compile(r"/jobs/new\Z"), _folder_bytes, Act.SUBMIT),
    Larger(re.compile(r"/api/v1/workspaces(/missing)?\Z"), lambda: MAX_JSON_BYTES, Act.SUBMIT),
    Larger(re.compile(r"/api/v1/workspaces/files\Z"), _folder_bytes, Act.SUBMIT),
    Larger(re.compile(r"/agent/v1/workspace\Z"), lambda: MAX_DIGESTS_BYTES),
    Larger(re.compile(r"/((api/v1/)?login|login/code|account/password)\Z"), lambda: TINY),
)
_USUAL = Larger(re.compile(""), lambda: SMALL)


def _limit_of(path: str) -> Larger:
    return next((one for one in LARGER if one.path.match(path)), _USUAL)


def most_bytes(path: str, *, kind: bytes = b"") -> int:
    """Return the largest body for this path and Content-Type, in bytes."""
    most = _limit_of(path).most()
    is_form = kind.strip().lower().startswith(b"application/x-www-form-urlencoded")
    return min(most, FORM_BYTES) if is_form else most


@dataclass(frozen=True)
class Caller:
    """Whose token or session came with a request; `may_send`: whether they may store more than `SMALL` bytes there."""

    key: bytes
    may_send: bool = True


class Bounded:
    """An ASGI application in front of another: blocks what is too large, too slow, or large and unauthenticated."""

    def __init__(self, app: App):
        self.app = app
        self.threads = ThreadPoolExecutor(IDENTITY_THREADS, thread_name_prefix="identity")
        self.room = Room()
        self.unfinished: Counter[bytes] = Counter()  # sender -> bytes of bodies that are not answered yet

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, words = 431, head_complaint(scope["headers"])
        if not words:
            status, words = 400, accept_complaint(scope["headers"]) or type_complaint(scope["headers"])
        if words:
            # Django never sees the headers that it would parse; building the refusal needs a few of the others.
            scope["headers"], scope[MARK], scope[WORDS] = _needed_to_refuse(scope["headers"]), status, words
        scope["headers"] = with_our_cookies(scope["headers"])
        headers = dict(scope["headers"])
        path, kind = scope["path"], headers.get(b"content-type", b"")

        async def ask() -> Caller | None:
            if path.startswith("/agent/"):
                agent = agent_sender(scope)
                return Caller(agent) if agent else None
            shown = headers.get(b"authorization", b"").decode("latin-1"), session_key(headers.get(b"cookie", b""))
            if not any(shown):
                return None
            return await asyncio.get_running_loop().run_in_executor(self.threads, _sender, path, *shown)

        most, announced = most_bytes(path, kind=kind), _announced(headers.get(b"content-length", b""))
        intake = Intake(scope, receive, ask, unfinished=self.unfinished, most=most, announced=announced)
        try:
            await self._inside(scope, intake, send)
        finally:
            intake.release()

    async def _inside(self, scope: MutableMapping[str, Any], intake: "Intake", send: Send) -> None:
        if scope["path"] == ALIVE:  # answers however full the room is
            await self.app(scope, intake, send)
        else:
            await self.room.inside(self.app, scope, intake, send)


class Intake:
    """A `receive` that ends a body early where it must, and leaves the status of the refusal in the scope.

    `TINY` bytes are read from any sender. For more the sender must be known: checked before any byte is read where the
    length was announced, and again every `CHECK_SECONDS` while the body arrives. `unfinished` is shared by all
    requests; `release` takes this body's bytes off it.
    """

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        ask: Callable[[], Awaitable[Caller | None]],
        *,
        unfinished: Counter[bytes],
        most: int,
        announced: int,
    ):
        self.scope, self.receive, self.ask, self.unfinished = scope, receive, ask, unfinished
        self.most, self.announced = most, announced
        self.taken, self.counted, self.began = 0, 0, asyncio.get_running_loop().time()
        self.has_begun = self.has_ended = False
        self.sender: Caller | None = None
        self.checked_at = 0.0

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
        self._count()
        self.has_ended = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """Call when the request is answered or given up: its body is stored no more."""
        if self.sender is not None and self.counted:
            self.unfinished[self.sender.key] -= self.counted
            if not self.unfinished[self.sender.key]:
                del self.unfinished[self.sender.key]
        self.counted = 0

    async def _objection(self, size: int) -> int:
        """Return the status that a body of this size is refused with; 0 for none."""
        if size > self.most:
            self.scope.setdefault(WORDS, f"a body sent here has at most {self.most} bytes; send less")
            return 413
        if size <= TINY:
            return 0
        try:
            sender = await self._known()
        except DatabaseError:
            return 503
        if sender is None:
            return 401
        if size > SMALL and not sender.may_send:
            return 403
        others = self.unfinished[sender.key] - self.counted
        return 429 if others + size > FOLDERS_AT_ONCE * _folder_bytes() else 0

    async def _known(self) -> Caller | None:
        """Return the sender, None once its credentials are not valid; asks at most every `CHECK_SECONDS`."""
        if self.sender is None or self._elapsed() - self.checked_at >= CHECK_SECONDS:
            found, self.checked_at = await self.ask(), self._elapsed()
            if found is None:
                return None  # the one found before stays: its bytes are still counted
            self.sender = found
        return self.sender

    def _count(self) -> None:
        if self.sender is not None:
            self.unfinished[self.sender.key] += self.taken - self.counted
            self.counted = self.taken

    def _end(self, status: int) -> Message:
        self.scope[MARK], self.has_ended = status, True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _rest(self) -> Message:
        """Wait for the disconnect, discarding any further body."""
        while (message := await self.receive())["type"] == "http.request":
            pass
        return message

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self.began


def head_complaint(headers: Iterable[Header]) -> str:
    """Return which headers are too long; "" if none. Linear in their bytes. Pure."""
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
    """Return why Django could not parse this Content-Type, or would decode the body differently; "" if neither. Pure.

    Forms in an encoding such as unicode_escape would carry NULs and lone surrogates past every check of the text as
    sent.
    """
    values = [value for name, value in headers if name == b"content-type"]
    if len(values) > 1:  # Django joins them into one value, which is none of them
        return "there are several Content-Type headers; send one"
    for value in values:
        try:
            _, parameters = parse_header_parameters(value.decode("latin-1"))
        except Exception:  # any exception: Django raises the same, where nothing turns it into a response
            return "the Content-Type header cannot be read; write it as type/subtype; name=value"
        if parameters.get("charset", "utf-8").lower() not in CHARSETS:
            return f"the Content-Type header names the charset {parameters['charset'][:40]!r}; send UTF-8"
    return ""


def accept_complaint(headers: Iterable[Header]) -> str:
    """Return why DRF could not parse this Accept; "" if it can. Pure.

    It fails on a type's parameters that are split in parts, or have a charset of their own.
    """
    types = (one for name, value in headers if name == b"accept" for one in value.split(b","))
    is_odd = any(b"*" in one.partition(b";")[2] for one in types)
    return "the Accept header cannot be read; write types as type/subtype; q=0.5" if is_odd else ""


def with_our_cookies(headers: Iterable[Header]) -> list[Header]:
    """Return the headers with only the cookies that Muster sets. Pure.

    Other applications on the host set cookies in any form. Ours contain no backslash: Python parses a quoted value with
    backslashes in time quadratic in its length.
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
    """Return the seconds that the next piece may take: an initial allowance, and more as more has arrived. Pure."""
    return max(BODY_SECONDS + taken / BODY_BYTES_PER_SECOND - elapsed, 0.0)


def _announced(text: bytes) -> int:
    return int(text) if text.isdigit() else 0


def _sender(path: str, authorization: str, session: str) -> Caller | None:
    """Return who sends this, by a valid token or session; the exact permission is checked later, once the team is known."""
    try:
        by_token = path.startswith("/api/") and authorization
        user = user_of_token(authorization) if by_token else user_of_session(session)
        if user is None:
            return None
        teams = teams_where(user, _limit_of(path).act)
        return Caller(b"user %d" % user.pk, may_send=teams is None or bool(teams))
    finally:
        if not connection.in_atomic_block:
            connection.close()  # to the pool: nothing else would do so in this thread


class Limits:
    """Refuse what is too large, too long or of an unknown method, before anything else processes it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refused(request) or self.get_response(request)


def _refused(request: HttpRequest) -> HttpResponse | None:
    if getattr(request, "scope", {}).get(MARK) in (400, 431):
        return _too_large(request)  # the rest of such a request was dropped, so nothing else can be checked
    if request.method not in METHODS:
        return refusal(request, status=405, detail=f"use one of {', '.join(sorted(METHODS))}")
    if "HTTP_HOST" not in request.META and getattr(request, "scope", {}).get("http_version") == "1.1":  # RFC 9112, 3.2
        return refusal(request, status=400, detail="a request by HTTP/1.1 names its host; send a Host header")
    if len(request.META.get("HTTP_HOST", "")) > HOST_CHARACTERS:
        return refusal(request, status=400, detail=f"the Host header has at most {HOST_CHARACTERS} characters")
    if problem := _holding_nul(request):
        return refusal(request, status=400, detail=str(problem), problem=problem)
    if len(request.get_full_path()) > ADDRESS_CHARACTERS:
        detail = f"an address has at most {ADDRESS_CHARACTERS} characters; send long values in the body"
        return refusal(request, status=414, detail=detail)
    return _too_large(request)


def _holding_nul(request: HttpRequest) -> Problem | None:
    """Return the parameter, or the path, that contains NUL, which no name or text here can: Postgres stores none."""
    if "\0" in request.path_info:
        return Problem("path", request.path_info[:SHOWN_CHARACTERS], NUL)
    if "%00" not in request.META.get("QUERY_STRING", ""):
        return None
    pairs = ((name, value) for name, values in request.GET.lists() for value in values)
    found = next(((name, value) for name, value in pairs if "\0" in name + value), None)
    return Problem(found[0][:SHOWN_CHARACTERS], found[1][:SHOWN_CHARACTERS], NUL) if found else None


def _too_large(request: HttpRequest) -> HttpResponse | None:
    most = most_bytes(request.path_info, kind=request.META.get("CONTENT_TYPE", "").encode())
    status: int = getattr(request, "scope", {}).get(MARK, 0)
    if not status and _announced(request.META.get("CONTENT_LENGTH", "").encode()) > most:
        status = 413
    if not status:
        return None
    details = {
        401: f"a body of more than {TINY} bytes is read only with a valid token or session; sign in or send a token",
        403: f"you may not send more than {SMALL} bytes here: no team lets you submit; ask an administrator of one",
        408: f"the body came too slowly; send at least {BODY_BYTES_PER_SECOND} bytes a second",
        413: f"a body sent here has at most {most} bytes; send less",
        429: "your other requests are still sending too many bytes; wait until one of them has ended",
        503: "the database does not answer; try again in a moment",
    }
    detail = getattr(request, "scope", {}).get(WORDS) or details[status]
    answer = refusal(request, status=status, detail=detail, retry_after=2 if status in (429, 503) else 0)
    if status == 401:
        answer["WWW-Authenticate"] = "Bearer"
    answer["Connection"] = "close"  # the rest of the body is not read
    return answer
