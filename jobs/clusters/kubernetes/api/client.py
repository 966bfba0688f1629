"""One event loop per process and one pooled session per cluster; other threads submit work to the loop.

The official package makes the session and keeps the credentials (session.py). The requests themselves are plain JSON
over aiohttp, which it depends on: its generated client takes several times as long for one pod.
"""

import asyncio
import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import uvloop

from common.errors import Unreachable
from common.telemetry import measures

from ..build.options import ApiAccess
from .answers import ApiAnswer
from .decode import write
from .session import Session, open_session
from .watch_batching import Pause, newest

# shorter than a lease can be renewed (control/lease_renewal.py): our call ends before another visit's begins
CALL_SECONDS = 10.0
PARSED_BYTES = 8 << 20  # of a resting watch, before its server has to wait: a second of what a large launch sends
UNREAD_BYTES = 256 << 10  # of a resting watch, in the kernel
POLL_TURNS = 2  # iterations of the event loop: poll, and read what is there
RETIRED_SECONDS = 60.0  # longer than any call
JSON = "application/json"
# Labels and owners only: a fifth of the bytes, where existence and ownership are all that matters.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
T = TypeVar("T")


class _Loop:
    """The event loop's thread, started with the first call, and again in a process forked after that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = uvloop.new_event_loop(), os.getpid()
                # The process's connections end with it; aiohttp would report each as not closed, when nothing can log any more.
                atexit.register(self._loop.set_exception_handler, _ignore)
                threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True).start()
            return self._loop


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    pass


_loop = _Loop()


def run(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of a coroutine, from a thread that may block. Raises Unreachable after `seconds`."""
    future = asyncio.run_coroutine_threadsafe(work, _loop.get())
    try:
        return future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise Unreachable(f"the cluster did not answer within {seconds:.0f} s") from None


def start(work: Coroutine[Any, Any, None]) -> Future[None]:
    """Start a coroutine in the background of this process; `cancel` ends it."""
    return asyncio.run_coroutine_threadsafe(work, _loop.get())


@dataclass(frozen=True)
class _Line:
    """The session and headers of one call."""

    session: Session
    headers: Mapping[str, str]


@dataclass(frozen=True)
class _Request:
    verb: str
    path: str
    content: bytes | None
    params: Mapping[str, str] | None
    accept: str
    kind: str
    seconds: float


class Api:
    """JSON over HTTP to one API server. Use from coroutines on the loop only."""

    def __init__(self, access: ApiAccess):
        self.access = access
        self.session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._pid = 0
        self.requests = 0  # sent by this process, for metrics

    async def call(
        self, verb: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None,
        accept: str = JSON, kind: str = JSON, seconds: float = CALL_SECONDS,
    ) -> ApiAnswer:  # fmt: skip
        """Send one request; `kind` is the content type of the body.

        Raises Unreachable without an answer; judging the answer is up to the caller.
        """
        ask = _Request(verb, path, None if body is None else write(body), params, accept, kind, seconds)
        used = await self._ready()
        answer = await self._send(ask, used)
        if answer.status != 401:
            return answer
        return await self._send(ask, await self._ready(instead_of=used.session))

    async def lines(
        self, path: str, *, params: Mapping[str, str], silence_seconds: float, rest: Pause | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Open a watch and yield its lines, one event each.

        Raises Unreachable when it breaks or is silent for too long.

        `rest` is awaited between two reads, with the byte count of the last one; of the events read at once, only the
        newest state of each object is returned.
        """
        line = await self._ready()
        self.requests += 1
        # `connect` is for a proxy that accepts a connection and never answers: `sock_read` begins after that.
        timeout = aiohttp.ClientTimeout(
            total=None, connect=silence_seconds, sock_connect=CALL_SECONDS, sock_read=silence_seconds
        )
        try:
            async with line.session.watches.get(
                path,
                params=params,
                headers=line.headers,
                timeout=timeout,
                server_hostname=line.session.server_name,
                allow_redirects=False,
                read_bufsize=PARSED_BYTES,
            ) as response:
                if response.status != 200:
                    status = {**ApiAnswer(response.status, await response.read()).body, "code": response.status}
                    yield write({"type": "ERROR", "object": status})
                    return
                async for event in split_lines(response.content, rest and undisturbed(response, rest)):
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"the watch of {path} broke: {line.session.words(error)}") from error

    async def close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def _send(self, ask: _Request, line: _Line) -> ApiAnswer:
        self.requests += 1
        began, status = time.monotonic(), "none"
        timeout = aiohttp.ClientTimeout(total=ask.seconds)
        headers = {**line.headers, "Accept": ask.accept, "Content-Type": ask.kind}
        try:
            async with line.session.http.request(
                ask.verb,
                ask.path,
                data=ask.content,
                params=ask.params,
                headers=headers,
                timeout=timeout,
                server_hostname=line.session.server_name,
                allow_redirects=False,  # do not send our credentials elsewhere
            ) as response:
                answer = ApiAnswer(response.status, await response.read(), response.headers.get("Retry-After", ""))
                status = str(response.status)
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"the cluster does not answer: {line.session.words(error)}") from error
        finally:
            measures.calls.labels(ask.verb, status).observe(time.monotonic() - began)

    async def _ready(self, instead_of: Session | None = None) -> _Line:
        """Return a session and the headers of its credentials. The server refused those of `instead_of`: re-read them."""
        if self._pid != os.getpid():  # forked: the parent's sockets are not ours
            self.session, self._opening, self._pid = None, None, os.getpid()
        session = self.session
        if session is None or session is instead_of:
            session = await self._renewed()
        return _Line(session, {"Accept": JSON, **await session.credentials()})

    async def _renewed(self) -> Session:
        """Open a session once for all calls that wait for one, also if that fails: a plug-in may take seconds."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)  # one that gives up does not end it for the others

    async def _open(self) -> Session:
        try:
            used, self.session = self.session, await open_session(self.access)
        finally:
            self._opening = None
        if used is not None:  # other calls still use it
            asyncio.get_running_loop().call_later(RETIRED_SECONDS, _close_soon, used)
        return self.session


def _close_soon(session: Session) -> None:
    task = asyncio.get_running_loop().create_task(session.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[None]] = set()


def undisturbed(response: aiohttp.ClientResponse, rest: Pause) -> Pause:
    """Return a pause during which the kernel wakes us only for many bytes or the end, not for each event.

    The kernel goes on receiving.
    """

    async def pause(size: int) -> None:
        connection = response.connection
        socket_of = connection.transport.get_extra_info("socket") if connection and connection.transport else None
        if socket_of is None:
            return  # it ended; whichever request gets the connection next must not be delayed
        socket_of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, UNREAD_BYTES)
        try:
            await rest(size)
        finally:
            with contextlib.suppress(OSError):  # closed meanwhile
                socket_of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        for _ in range(POLL_TURNS):  # read what the kernel kept now, not after the next rest
            await asyncio.sleep(0)

    return pause


async def split_lines(content: aiohttp.StreamReader, rest: Pause | None = None) -> AsyncIterator[bytes]:
    """Split a stream into lines of any length: one object may be larger than any buffer.

    With a `rest` between reads, only the newest states are returned.
    """
    begun: list[bytes] = []
    async for piece in content.iter_any():
        first, *others = piece.split(b"\n")
        begun.append(first)
        if not others:
            continue
        lines, begun = [b"".join(begun), *others[:-1]], [others[-1]]
        for one in lines if rest is None else newest(lines):
            yield one
        if rest is not None:
            await rest(len(piece))
