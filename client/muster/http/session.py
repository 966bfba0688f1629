"""Send calls with retries, read lists page by page, hold streams open: what every operation is made of."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Callable, TypeVar

import httpx

from muster.http.call import Call, Page
from muster.http.port import Port
from muster.http.wire import Reply, Retry, Wire

S = TypeVar("S")
T = TypeVar("T")


class Session:
    """One server, over a port. Operations are methods of its subclasses and await nothing but what is here."""

    def __init__(self, wire: Wire, *, port: Port, on_retry: Callable[[Retry], None]) -> None:
        self.url = wire.url
        self._wire = wire
        self._port = port
        self._on_retry = on_retry

    async def _send(self, call: Call[T]) -> T:
        return self._wire.read(call, reply=await self._patiently(call))

    async def _patiently(self, call: Call[Any], *, is_stream: bool = False) -> httpx.Response:
        """Return the first answer that ends the retries. Raises Unreachable where there is none."""
        tried, rested = 1, 0.0
        while True:
            try:
                # Built anew each time: content that reports its progress can be consumed only once.
                reply: Reply = await self._port.send(self._wire.request(call), is_stream=is_stream)
            except httpx.RequestError as error:
                reply = error
            pause = self._wire.pause(call, reply=reply, tried=tried, rested=rested)
            if pause is None:
                return self._wire.received(reply)
            if isinstance(reply, httpx.Response):
                await self._port.release(reply)
            self._on_retry(self._wire.retry(call, reply=reply, tried=tried, pause_seconds=pause))
            await self._port.sleep(pause)
            tried, rested = tried + 1, rested + pause

    @contextlib.asynccontextmanager
    async def _open(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        """Yield the response while it is still arriving; refusals are raised as usual.

        Raises CutOff where it breaks off.
        """
        reply = await self._patiently(call, is_stream=True)
        try:
            if not reply.is_success:
                await self._port.read(reply)
                self._wire.read(call, reply=reply)
            yield reply
        except httpx.RequestError as error:
            raise self._wire.cut_off(error) from error
        finally:
            await self._port.release(reply)

    async def _items(self, first: Call[Page[T]], *, limit: int | None = None) -> AsyncIterator[T]:
        """Yield at most `limit` items, fetching pages as they are needed."""
        following: Call[Page[T]] | None = first
        left = limit
        while following and left != 0:
            page = await self._send(following)
            items = page.items[:left]
            for item in items:
                yield item
            left, following = None if left is None else left - len(items), page.next

    async def _whole(self, first: Call[Page[T]]) -> list[T]:
        return [item async for item in self._items(first)]


@contextlib.asynccontextmanager
async def closing(items: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close a generator at once where `async for` alone leaves that to the collector: it may hold a connection."""
    try:
        yield items
    finally:
        await items.aclose()  # type: ignore[attr-defined]


async def flat(pages: AsyncIterator[S], parts: Callable[[S], Iterable[T]]) -> AsyncIterator[T]:
    """Yield the parts of each page."""
    async with closing(pages):
        async for page in pages:
            for part in parts(page):
                yield part
