"""How many requests are inside Django at once. Each takes a thread there, and a process that can start no more answers nobody."""

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.cookie import parse_cookie
from django.utils.functional import SimpleLazyObject

from common.error_responses import problem_details
from common.request_origin import client_address
from jobs.ingest.agent_tokens import bearer

log = logging.getLogger(__name__)

MOST_AT_ONCE = 6  # of one user or agent: what a browser opens to one server; more would only share the interpreter, and multiply memory
MOST_OF_ADDRESS = 16  # of senders that are not known yet
SIGN_INS = ("/login", "/api/v1/login")  # of people who have nothing to show yet
MOST_INSIDE = 256  # of all
SMALL_BYTES = 256 << 10  # of an answer; a page has less
SEND_SECONDS = 60.0  # for each piece of a large one
MOST_UNKNOWN = 128  # of senders that were not let in lately: the other places are for people who are signed in
MOST_WAITING = 256  # of one sender: who comes behind strangers of the same address must not wait for thousands of them
KNOWN_SECONDS = 86_400.0
MOST_KNOWN = 20_000
LET_IN = "muster.let_in"  # in the scope: whose token or session this is, as Django found

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI


def shown(scope: Scope) -> bytes:
    """A digest of the token or session that counts for this request, whatever else it brings; empty where there is none.

    What nobody checks must not make another one: blanks, letters of the scheme, other schemes, other cookies.
    """
    headers = dict(scope["headers"])
    if scope["path"] in SIGN_INS:
        return b""
    scheme, _, token = b" ".join(headers.get(b"authorization", b"").split()).partition(b" ")
    if scope["path"].startswith("/api/") and scheme.lower() == b"bearer":
        return hashlib.sha256(b"token " + token).digest()
    session = session_key(headers.get(b"cookie", b""))
    return hashlib.sha256(f"session {session}".encode()).digest() if session else b""


def address(scope: Scope) -> bytes:
    headers = dict(scope["headers"])
    remote = str((scope.get("client") or [""])[0])
    forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
    return (client_address(remote, forwarded, settings.TRUSTED_PROXIES) or "").encode()


def session_key(cookie: bytes) -> str:
    """As Django reads it: of two cookies of one name the last counts, and another one before it is no other sender."""
    return parse_cookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")


class LetIn:
    """Tells the room whom Django let in. Nobody is looked up for that: who was not asked for stays unknown."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        user = request.__dict__.get("user")  # the REST API puts whom a token belongs to there
        if isinstance(user, SimpleLazyObject):
            user = request.__dict__.get("_cached_user")
        if user is not None and user.is_authenticated and hasattr(request, "scope"):
            request.scope[LET_IN] = user.pk
        return response


class Known:
    """Whose tokens and sessions Django let in lately: all of one user's are one sender, however many they are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.users: dict[bytes, tuple[int, float]] = {}  # key -> user, until when; the oldest first

    def add(self, key: bytes, user: int) -> None:
        self.users.pop(key, None)
        self.users[key] = user, self.clock() + KNOWN_SECONDS
        if len(self.users) > MOST_KNOWN:
            del self.users[next(iter(self.users))]

    def sender(self, key: bytes) -> bytes:
        """Empty for a key that nobody was let in with."""
        user, until = self.users.get(key, (0, 0.0))
        return b"user %d" % user if until > self.clock() else b""


class Full(Exception):
    """No thread is left for a request."""


class Room:
    """How many requests are inside Django at once. Those of one sender wait for each other, and hold up nobody else.

    A sender is a user, as their token or session was let in lately, or an agent. Anybody can write another token into each
    request: until Django has found whose it is, the request counts for the address that it comes from.
    """

    def __init__(self) -> None:
        self.taken = self.unknown = 0
        self.known = Known()
        self.waiting: Counter[bytes] = Counter()
        self.turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()  # gone when nobody waits

    async def inside(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """A request takes a place from the end of its body to the head of its answer, a large answer until it was taken.

        Not before, since a body may take its time; not after, since a stream is no thread. A large answer lies in memory
        until its reader has it.
        """
        key = shown(scope)
        known = _agent(scope) if scope["path"].startswith("/agent/") else self.known.sender(key)
        place = _Place(self, known or address(scope), is_known=bool(known))

        async def receive_whole() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await place.take()
            return message

        is_large = False

        async def send_on(message: Message) -> None:
            nonlocal is_large
            if message["type"] == "http.response.start":
                is_large = _length(message) > SMALL_BYTES
                if key and LET_IN in scope:
                    self.known.add(key, scope[LET_IN])
            if not is_large:
                place.leave()
            # Django sends a whole answer in pieces, and each waits until the one before was taken.
            await asyncio.wait_for(send(message), SEND_SECONDS if is_large else None)

        try:
            await app(scope, receive_whole, send_on)
        except Full:
            await _send_full(send)
        except TimeoutError:
            if not is_large:
                raise
            log.info("an answer to %s was not taken for %s s and is given up", scope["path"], SEND_SECONDS)
        finally:
            place.leave()


class _Place:
    def __init__(self, room: Room, sender: bytes, *, is_known: bool):
        self.room, self.sender, self.is_known = room, sender, is_known
        self.turn: asyncio.Semaphore | None = None

    async def take(self) -> None:
        turn = self.room.turns.setdefault(
            self.sender, asyncio.Semaphore(MOST_AT_ONCE if self.is_known else MOST_OF_ADDRESS)
        )
        if self.room.waiting[self.sender] >= MOST_WAITING:
            raise Full
        self.room.waiting[self.sender] += 1
        try:
            await turn.acquire()
        finally:
            self.room.waiting[self.sender] -= 1
            if not self.room.waiting[self.sender]:
                del self.room.waiting[self.sender]
        if self.room.taken >= MOST_INSIDE or (not self.is_known and self.room.unknown >= MOST_UNKNOWN):
            turn.release()
            raise Full
        self.room.taken += 1
        self.room.unknown += not self.is_known
        self.turn = turn

    def leave(self) -> None:
        if self.turn is not None:
            self.room.taken -= 1
            self.room.unknown -= not self.is_known
            self.turn.release()
            self.turn = None


def _length(start: Message) -> int:
    """What the head of an answer says; 0 for a stream."""
    return next((int(value) for name, value in start.get("headers", ()) if name.lower() == b"content-length"), 0)


def _agent(scope: Scope) -> bytes:
    """By the signature of its token: nobody needs to be asked. Empty for anybody else."""
    identity = bearer(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
    return f"agent {identity}".encode() if identity else b""


async def _send_full(send: Send) -> None:
    answer = problem_details(503, "too many requests are being answered")
    headers = {
        **answer.headers, "Content-Length": str(len(answer.content)), "Retry-After": "2", "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'",
    }  # fmt: skip
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.content})
