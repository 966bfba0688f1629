"""What the core needs of an HTTP library and of the machine, and who provides it: `AsyncPort` or `BlockingPort`.

The core (`muster.http.session` and all operations) is asynchronous code that awaits nothing but a `Port`. The methods
of `BlockingPort` block and never suspend, so `muster.http.blocking` runs the same code without an event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Callable, Protocol, TypeVar

import httpx

T = TypeVar("T")


class Port(Protocol):
    async def send(self, request: dict[str, Any], *, is_stream: bool = False) -> httpx.Response:
        """Send what `httpx.Client.build_request` takes; a stream's body is left unread. Raises httpx.RequestError."""

    async def read(self, reply: httpx.Response) -> None:
        """Read the body of a stream as a whole."""

    async def release(self, reply: httpx.Response) -> None:
        """Return the connection of a response, read to its end or not."""

    def lines(self, reply: httpx.Response) -> AsyncIterator[str]:
        """Yield the body of a stream as it arrives."""

    def text(self, reply: httpx.Response) -> AsyncIterator[str]:
        """Yield the body of a stream as it arrives, in pieces of any length."""

    async def sleep(self, seconds: float) -> None: ...

    async def work(self, run: Callable[[], T]) -> T:
        """Return the result of something that reads this machine's disk, without holding up other tasks."""

    async def close(self) -> None: ...


class BlockingPort:
    def __init__(self, settings: dict[str, Any], *, sleep: Callable[[float], None]) -> None:
        self.http = httpx.Client(**settings)
        self._sleep = sleep

    async def send(self, request: dict[str, Any], *, is_stream: bool = False) -> httpx.Response:
        return self.http.send(self.http.build_request(**request), stream=is_stream)

    async def read(self, reply: httpx.Response) -> None:
        reply.read()

    async def release(self, reply: httpx.Response) -> None:
        reply.close()

    async def lines(self, reply: httpx.Response) -> AsyncIterator[str]:
        for line in reply.iter_lines():
            yield line

    async def text(self, reply: httpx.Response) -> AsyncIterator[str]:
        for piece in reply.iter_text():
            yield piece

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def work(self, run: Callable[[], T]) -> T:
        return run()

    async def close(self) -> None:
        self.http.close()


class AsyncPort:
    def __init__(self, settings: dict[str, Any], *, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.http = httpx.AsyncClient(**settings)
        self._sleep = sleep

    async def send(self, request: dict[str, Any], *, is_stream: bool = False) -> httpx.Response:
        if isinstance(request.get("content"), Iterator):
            request = {**request, "content": _awaited(request["content"])}
        return await self.http.send(self.http.build_request(**request), stream=is_stream)

    async def read(self, reply: httpx.Response) -> None:
        await reply.aread()

    async def release(self, reply: httpx.Response) -> None:
        await reply.aclose()

    def lines(self, reply: httpx.Response) -> AsyncIterator[str]:
        return reply.aiter_lines()

    def text(self, reply: httpx.Response) -> AsyncIterator[str]:
        return reply.aiter_text()

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def work(self, run: Callable[[], T]) -> T:
        import asyncio

        return await asyncio.to_thread(run)

    async def close(self) -> None:
        await self.http.aclose()


async def async_sleep(seconds: float) -> None:
    import asyncio  # 15 ms, which the command line does not need

    await asyncio.sleep(seconds)


async def _awaited(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
