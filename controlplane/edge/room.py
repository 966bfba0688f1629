"""Limit how many requests are inside Django at once.

Each takes a thread there, and a process that can start no more threads answers no requests.
"""

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

from common.http.error_responses import problem_details
from common.http.request_origin import client_address
from jobs.ingest.agent_tokens import bearer

log = logging.getLogger(__name__)

# Per user or agent: as many as a browser opens to one server; more would only share the interpreter, and multiply
# memory.
MOST_AT_ONCE = 6
MOST_OF_ADDRESS = 16  # per address, of senders not yet known
SIGN_INS = ("/login", "/api/v1/login")  # paths for people without credentials yet
MOST_INSIDE = 256  # in total
SMALL_BYTES = 256 << 10  # of a response; a page is smaller
SEND_SECONDS = 60.0  # for each piece of a large response
MOST_UNKNOWN = 128  # of senders not let in lately: the other places are for people who are signed in
MOST_WAITING = 256  # per sender: a request behind others from the same address must not wait for thousands of them
KNOWN_SECONDS = 86_400.0
MOST_KNOWN = 20_000
LET_IN = "muster.let_in"  # scope key: the user of this token or session, as Django determined

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI


def shown(scope: Scope) -> bytes:
    """Return a digest of the token or session that counts for this request; empty where there is none.

    Parts that nothing checks must not change it: blanks, letter case of the scheme, other schemes, other cookies.
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
    """Return the session key as Django parses it.

    Of two cookies of one name the last counts, so another one before it does not make a new sender.
    """
    return parse_cookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")


class LetIn:
    """Report to the room which user Django let in.

    It looks up no user for that: if the view did not need one, the sender stays unknown.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        user = request.__dict__.get("user")  # the REST API puts the token's user there
        if isinstance(user, SimpleLazyObject):
            user = request.__dict__.get("_cached_user")
        if user is not None and user.is_authenticated and hasattr(request, "scope"):
            request.scope[LET_IN] = user.pk
        return response


class RecentUsers:
    """Users whose tokens and sessions Django let in lately: all of one user's are one sender, however many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.users: dict[bytes, tuple[int, float]] = {}  # key -> (user, until when); the oldest first

    def add(self, key: bytes, user: int) -> None:
        self.users.pop(key, None)
        self.users[key] = user, self.clock() + KNOWN_SECONDS
        if len(self.users) > MOST_KNOWN:
            del self.users[next(iter(self.users))]

    def sender(self, key: bytes) -> bytes:
        """Return the sender; empty for a key that was not let in lately."""
        user, until = self.users.get(key, (0, 0.0))
        return b"user %d" % user if until > self.clock() else b""


class Full(Exception):
    """No thread is left for a request."""


class Room:
    """Limit requests inside Django. Those of one sender wait for each other, and delay no other sender's.

    A sender is a user, as their token or session was let in lately, or an agent. A client can put another token into
    each request: until Django has found its user, the request counts for the address that it comes from.
    """

    def __init__(self) -> None:
        self.taken = self.unknown = 0
        self.known = RecentUsers()
        self.waiting: Counter[bytes] = Counter()
        # Dropped with the last waiter.
        self.turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    async def inside(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request hold a place from the end of its body to the head of its response, or the end of a large one.

        Not before, since a body may take its time; not after, since a stream uses no thread. A large response stays in
        memory until its client has read it.
        """
        key = shown(scope)
        known = agent_sender(scope) if scope["path"].startswith("/agent/") else self.known.sender(key)
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
            # Django sends a whole response in pieces, and each waits until the previous one was sent.
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
    """Return a response's Content-Length; 0 for a stream."""
    return next((int(value) for name, value in start.get("headers", ()) if name.lower() == b"content-length"), 0)


def agent_sender(scope: Scope) -> bytes:
    """Return an agent's identity by the signature of its token, without a query; empty for other senders."""
    identity = bearer(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
    return f"agent {identity}".encode() if identity else b""


async def _send_full(send: Send) -> None:
    answer = problem_details(503, "too many requests are being processed")
    headers = {
        **answer.headers, "Content-Length": str(len(answer.content)), "Retry-After": "2", "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'",
    }  # fmt: skip
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.content})
