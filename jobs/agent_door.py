"""The way in for agents' batches: straight from the socket to a few threads, past sessions, forms and templates.

Batches are by far the most frequent requests, and a flood of them must not take the threads and connections that pages
need. So they have threads of their own, few, and what can not be held is sent away to come again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from .agent_answers import Answer, answer, refused
from .agent_tokens import AgentIdentity, bearer
from .batches import MAX_BATCH_BYTES

PATH = "/agent/v1/batches"
THREADS = 2  # they wait for the database and the disk in turns; more would only take the processor from pages
MOST_WAITING_BYTES = 64 * 2**20
BUSY = 16  # batches waiting: then agents are asked for fewer and larger ones
SLOW_SECONDS = 5
BODY_SECONDS = 30.0  # for all of a batch to arrive: who sends it drop by drop holds room that others need

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class AgentDoor:
    """An ASGI application in front of another one, which has everything but the batches."""

    def __init__(self, app: App):
        self.app = app
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ingest")
        self.waiting = self.waiting_bytes = 0
        self.inside: set[AgentIdentity] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            with suppress(ConnectionAbortedError):  # who went away needs no answer
                await _send(send, await self._answer(dict(scope["headers"]), receive))
        else:
            await self.app(scope, receive, send)

    async def _answer(self, headers: dict[bytes, bytes], receive: Receive) -> Answer:
        """Who asks is looked at before what is sent, and its size before its bytes."""
        identity = bearer(headers.get(b"authorization", b"").decode("latin-1"))
        if identity is None:
            return refused(401, "this is not an agent's token")
        said = headers.get(b"content-length", b"0")
        size = int(said) if said.isdigit() else MAX_BATCH_BYTES
        if size > MAX_BATCH_BYTES:
            return refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
        if self.waiting_bytes + size > MOST_WAITING_BYTES:
            return refused(503, "too many batches wait here already", retry_after=1)
        if identity in self.inside:
            return refused(503, "the batch before this one is still being taken", retry_after=1)
        self.inside.add(identity)
        self.waiting, self.waiting_bytes = self.waiting + 1, self.waiting_bytes + size
        try:
            return self._slowed(await self._apply(identity, receive))
        finally:
            self.inside.discard(identity)
            self.waiting, self.waiting_bytes = self.waiting - 1, self.waiting_bytes - size

    def _slowed(self, one: Answer) -> Answer:
        if self.waiting > BUSY and one.status == 200:
            one.content["commands"].append({"do": "slow", "seconds": SLOW_SECONDS})
        return one

    async def _apply(self, identity: AgentIdentity, receive: Receive) -> Answer:
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
        except TimeoutError:
            return refused(408, f"a batch must arrive within {BODY_SECONDS:g} s")
        if body is None:
            return refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
        return await asyncio.get_running_loop().run_in_executor(self.threads, answer, identity, body)


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None for one that is longer than any batch, whatever its header said."""
    pieces, size, is_more = [], 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionAbortedError
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BATCH_BYTES:
            return None
        is_more = message.get("more_body", False)
    return b"".join(pieces)


_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
}


async def _send(send: Send, one: Answer) -> None:
    content = json.dumps(one.content).encode()
    headers = {"Content-Type": one.kind, "Content-Length": str(len(content)), **_SAFE, **one.headers}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": one.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
