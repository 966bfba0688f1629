"""The entry point for agents' batches: straight from the socket to a few threads, past sessions, forms and templates.

Batches are by far the most frequent requests, and a flood of them must not take the threads and connections that pages
need. So they have a few threads of their own, and batches beyond their capacity are refused and sent again later. Teams
take turns at the threads and share the memory, so one team's flood delays another team's batch by a batch or two.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.conf import settings

from common.limits.shared_rates import buckets
from common.telemetry import measures, traces
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import MAX_BATCH_BYTES

from . import turns
from .agent_tokens import bearer
from .handler import AgentAnswer, answer, refused

PATH = "/agent/v1/batches"
THREADS = 2  # they take turns waiting for database and disk; more would only take CPU time from pages
MOST_WAITING_BYTES = 64 * 2**20
BUSY = 16  # batches waiting, above which agents are asked for fewer and larger ones
SLOW_SECONDS = 5
BODY_SECONDS = 30.0  # for all of a batch to arrive: a slow sender holds memory that others need

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class AgentDoor:
    """An ASGI application that handles batches and passes everything else to another one."""

    def __init__(self, app: App):
        self.app = app
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ingest")
        self.turns = turns.Turns(THREADS)
        self.waiting = self.waiting_bytes = 0
        self.bytes_of: Counter[str] = Counter()  # payer -> bytes waiting
        self.inside: set[AgentIdentity] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            with suppress(ConnectionAbortedError):  # the client is gone and needs no answer
                began = time.perf_counter()
                with traces.span("batch", kind=traces.Kind.SERVER):
                    found = await self._answer(dict(scope["headers"]), receive)
                    traces.note(status=found.status)
                measures.batches.labels(str(found.status)).observe(time.perf_counter() - began)
                await _send(send, found)
        else:
            await self.app(scope, receive, send)

    async def _answer(self, headers: dict[bytes, bytes], receive: Receive) -> AgentAnswer:
        """Answer one request. The identity is checked before the content, and the size before the bytes."""
        identity = bearer(headers.get(b"authorization", b"").decode("latin-1"))
        if identity is None:
            return refused(401, "this is not an agent's token")
        traces.note(job=identity.job, attempt=identity.attempt, role=identity.role, replica=identity.index)
        if seconds := buckets.take(f"batches {identity}", per_minute=settings.MUSTER_RATE_AGENT):
            return refused(429, f"more than {settings.MUSTER_RATE_AGENT} batches a minute", retry_after=seconds)
        # Without one it may have any length; Python refuses to read one of thousands of digits.
        declared = headers.get(b"content-length", b"")
        size = int(declared) if declared.isdigit() and len(declared) <= 100 else MAX_BATCH_BYTES
        if size > MAX_BATCH_BYTES:
            return refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
        who = turns.payer(identity.job)
        # A payer may hold at most what is left for the others: one team alone at most half of the room.
        if self.bytes_of[who] + size > MOST_WAITING_BYTES - self.waiting_bytes:
            return refused(503, "too many batches are waiting already", retry_after=1)
        if identity in self.inside:
            return refused(503, "the previous batch is still being applied", retry_after=1)
        self.inside.add(identity)
        self._hold(who, 1, size)
        try:
            return self._slowed(await self._apply(identity, receive, who=who))
        finally:
            self.inside.discard(identity)
            self._hold(who, -1, -size)

    def _hold(self, who: str, batches: int, size: int) -> None:
        self.waiting, self.waiting_bytes = self.waiting + batches, self.waiting_bytes + size
        self.bytes_of[who] += size
        if not self.bytes_of[who]:
            del self.bytes_of[who]

    def _slowed(self, one: AgentAnswer) -> AgentAnswer:
        if self.waiting > BUSY and one.status == 200:
            one.content["commands"].append({"do": "slow", "seconds": SLOW_SECONDS})
        return one

    async def _apply(self, identity: AgentIdentity, receive: Receive, *, who: str) -> AgentAnswer:
        try:
            body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
        except TimeoutError:
            return refused(408, f"a batch must arrive within {BODY_SECONDS:g} s")
        if body is None:
            return refused(413, f"a batch has at most {MAX_BATCH_BYTES} bytes")
        async with self.turns.turn(who):
            return await asyncio.get_running_loop().run_in_executor(
                self.threads, traces.carried(answer), identity, body
            )


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it exceeds any batch, whatever its header declares."""
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


async def _send(send: Send, one: AgentAnswer) -> None:
    content = json.dumps(one.content).encode()
    headers = {"Content-Type": one.kind, "Content-Length": str(len(content)), **_SAFE, **one.headers}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": one.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
