"""How many requests are inside Django at once. Each takes a thread there, and a process that can start no more answers nobody."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

from django.conf import settings
from django.http.cookie import parse_cookie

from .origin import client_address
from .refusals import problem_details

MOST_AT_ONCE = 16  # of one token, session or address
TAKES_TOKENS = ("/api/", "/agent/")
SIGN_INS = ("/login", "/api/v1/login")  # of people who have nothing to show yet
MOST_INSIDE = 256  # of all

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI


def sender(scope: MutableMapping[str, Any]) -> bytes:
    """On whose account a request is, before anybody looked at what it shows: a token, a session, or an address."""
    headers = dict(scope["headers"])
    # What nobody checks must not make another sender: blanks, other cookies, a token where only sessions count.
    is_program = scope["path"].startswith(TAKES_TOKENS) and scope["path"] not in SIGN_INS
    if is_program and (token := b" ".join(headers.get(b"authorization", b"").split())):
        return hashlib.sha256(b"token " + token).digest()
    if scope["path"] not in SIGN_INS and (session := session_key(headers.get(b"cookie", b""))):
        return hashlib.sha256(f"session {session}".encode()).digest()
    remote = str((scope.get("client") or [""])[0])
    forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
    return (client_address(remote, forwarded, settings.TRUSTED_PROXIES) or "").encode()


def session_key(cookie: bytes) -> str:
    """As Django reads it: of two cookies of one name the last counts, and another one before it is no other sender."""
    return parse_cookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME, "")


class Full(Exception):
    """No thread is left for a request."""


class Room:
    """How many requests are inside Django at once. Those of one sender wait for each other, and hold up nobody else."""

    def __init__(self) -> None:
        self.taken = 0
        self.turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()  # gone when nobody waits

    async def inside(self, app: App, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A request takes a place from the end of its body to the head of its answer.

        Not before, since a body may take its time; not after, since a stream is no thread.
        """
        place = _Place(self, sender(scope))

        async def receive_whole() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await place.take()
            return message

        async def send_on(message: Message) -> None:
            place.leave()
            await send(message)

        try:
            await app(scope, receive_whole, send_on)
        except Full:
            await _send_full(send)
        finally:
            place.leave()


class _Place:
    def __init__(self, room: Room, sender: bytes):
        self.room, self.sender = room, sender
        self.turn: asyncio.Semaphore | None = None

    async def take(self) -> None:
        turn = self.room.turns.setdefault(self.sender, asyncio.Semaphore(MOST_AT_ONCE))
        await turn.acquire()
        if self.room.taken >= MOST_INSIDE:
            turn.release()
            raise Full
        self.room.taken += 1
        self.turn = turn

    def leave(self) -> None:
        if self.turn is not None:
            self.room.taken -= 1
            self.turn.release()
            self.turn = None


async def _send_full(send: Send) -> None:
    answer = problem_details(503, "too many requests are being answered")
    headers = {
        **answer.headers, "Content-Length": str(len(answer.content)), "Retry-After": "2", "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'",
    }  # fmt: skip
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.content})
