"""Send calls over HTTP with retries, and run the steps of a flow, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Callable, TypeVar

import httpx

from muster.errors import MusterError
from muster.http.call import Call, Flow, Page, Work
from muster.http.config import find_server
from muster.http.wire import Reply, Retry, Wire

T = TypeVar("T")
S = TypeVar("S", bound="AsyncTransport")


class AsyncTransport:
    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.AsyncClient(**self._wire.settings())
        self._sleep = sleep
        self._on_retry = on_retry

    async def __aenter__(self: S) -> S:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        """Run a flow to its end; errors of a step are thrown into the flow."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step)
                except MusterError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Call[Any] | Work[Any]) -> Any:
        if isinstance(step, Work):
            return await asyncio.to_thread(step.run)
        return await self._send(step)

    async def _items(self, first: Call[Page[T]], *, limit: int | None) -> AsyncIterator[T]:
        """Yield items, fetching pages as they are needed."""
        following: Call[Page[T]] | None = first
        left = limit
        while following and left != 0:
            page = await self._send(following)
            items = page.items[:left]
            for item in items:
                yield item
            left, following = None if left is None else left - len(items), page.next

    async def _send(self, call: Call[T]) -> T:
        reply = await self._patiently(call, lambda: self._http.request(**self._request(call)))
        return self._wire.read(call, reply=reply)

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        """Build the request for each attempt: content that reports its progress can be consumed only once."""
        content = {} if call.on_sent is None else {"content": self._pieces(call)}
        return {**self._wire.request(call), **content}

    async def _pieces(self, call: Call[Any]) -> AsyncIterator[bytes]:
        for piece in self._wire.pieces(call):
            yield piece

    async def _patiently(self, call: Call[Any], attempt: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """Return the first answer that ends the retries. Raises Unreachable where there is none."""
        tried, rested = 1, 0.0
        while True:
            try:
                reply: Reply = await attempt()
            except httpx.RequestError as error:
                reply = error
            pause = self._wire.pause(call, reply=reply, tried=tried, rested=rested)
            if pause is None:
                return self._wire.received(reply)
            if isinstance(reply, httpx.Response):
                await reply.aclose()
            self._on_retry(self._wire.retry(call, reply=reply, tried=tried, pause_seconds=pause))
            await self._sleep(pause)
            tried, rested = tried + 1, rested + pause

    @contextlib.asynccontextmanager
    async def _open(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        """Yield the response while it is still arriving; refusals are raised as usual.

        Raises CutOff where it breaks off.
        """
        request = self._http.build_request(**self._wire.request(call))
        reply = await self._patiently(call, lambda: self._http.send(request, stream=True))
        try:
            if not reply.is_success:
                await reply.aread()
                self._wire.read(call, reply=reply)
            yield reply
        except httpx.RequestError as error:
            raise self._wire.cut_off(error) from error
        finally:
            await reply.aclose()
