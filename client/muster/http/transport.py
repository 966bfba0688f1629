"""Send calls over HTTP with retries, and run the steps of a flow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Callable, TypeVar

import httpx

from muster.errors import MusterError
from muster.http.call import Call, Flow, Page, Work
from muster.http.config import find_server
from muster.http.wire import Reply, Retry, Wire

T = TypeVar("T")
S = TypeVar("S", bound="Transport")


class Transport:
    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.Client(**self._wire.settings())
        self._sleep = sleep
        self._on_retry = on_retry

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        # An interrupt may have come just as the connection pool took its lock, which closing needs too.
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            self.close()

    def close(self) -> None:
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        """Run a flow to its end; errors of a step are thrown into the flow."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step)
                except MusterError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Call[Any] | Work[Any]) -> Any:
        return step.run() if isinstance(step, Work) else self._send(step)

    def _items(self, first: Call[Page[T]], *, limit: int | None) -> Iterator[T]:
        """Yield items, fetching pages as they are needed."""
        following: Call[Page[T]] | None = first
        left = limit
        while following and left != 0:
            page = self._send(following)
            items = page.items[:left]
            yield from items
            left, following = None if left is None else left - len(items), page.next

    def _send(self, call: Call[T]) -> T:
        reply = self._patiently(call, lambda: self._http.request(**self._request(call)))
        return self._wire.read(call, reply=reply)

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        """Build the request for each attempt: content that reports its progress can be consumed only once."""
        content = {} if call.on_sent is None else {"content": self._wire.pieces(call)}
        return {**self._wire.request(call), **content}

    def _patiently(self, call: Call[Any], attempt: Callable[[], httpx.Response]) -> httpx.Response:
        """Return the first answer that ends the retries. Raises Unreachable where there is none."""
        tried, rested = 1, 0.0
        while True:
            try:
                reply: Reply = attempt()
            except httpx.RequestError as error:
                reply = error
            pause = self._wire.pause(call, reply=reply, tried=tried, rested=rested)
            if pause is None:
                return self._wire.received(reply)
            if isinstance(reply, httpx.Response):
                reply.close()
            self._on_retry(self._wire.retry(call, reply=reply, tried=tried, pause_seconds=pause))
            self._sleep(pause)
            tried, rested = tried + 1, rested + pause

    @contextlib.contextmanager
    def _open(self, call: Call[Any]) -> Iterator[httpx.Response]:
        """Yield the response while it is still arriving; refusals are raised as usual.

        Raises CutOff where it breaks off.
        """
        request = self._http.build_request(**self._wire.request(call))
        reply = self._patiently(call, lambda: self._http.send(request, stream=True))
        try:
            if not reply.is_success:
                reply.read()
                self._wire.read(call, reply=reply)
            yield reply
        except httpx.RequestError as error:
            raise self._wire.cut_off(error) from error
        finally:
            reply.close()
