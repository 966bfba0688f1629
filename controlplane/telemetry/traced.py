"""The spans of requests and of tasks (common/telemetry/traces.py, docs/traces.md)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from celery import Task
from django.http import HttpRequest, HttpResponse

from common.http import request_ids
from common.http.middleware import ALIVE, Middleware
from common.telemetry import traces

PROBES = frozenset({ALIVE, "/readyz"})  # asked every few seconds for good
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI


class Traced(Middleware):
    """Trace each request by its route, until the head of the answer. A caller's own trace goes on (`traceparent`)."""

    @contextmanager
    def around(self, request: HttpRequest) -> Iterator[None]:
        if request.path_info in PROBES:
            yield
            return
        method = request.method if request.method in METHODS else "_OTHER"
        cause = request.headers.get(traces.HEADER, "")
        with traces.span(method, kind=traces.Kind.SERVER, cause=cause, method=method, request=request_ids.current()):
            try:
                yield
            finally:
                _note_route(request, method)

    def after(self, response: HttpResponse) -> HttpResponse:
        traces.note(status=response.status_code)
        if response.status_code >= 500:
            traces.note(error=str(response.status_code))
        return response


def _note_route(request: HttpRequest, method: str) -> None:
    match = request.resolver_match
    if match is None:
        return
    job = str(match.kwargs.get("pk", "")) if "jobs/" in match.route else ""
    traces.note(name=f"{method} {match.view_name}", route=f"/{match.route}")
    if job.isdecimal():
        traces.note(job=int(job[:18]))


class TracedTask(Task):  # type: ignore[misc]  # Celery has no types
    """Trace each task as a part of what caused it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with traces.span(
            f"task {self.name}",
            kind=traces.Kind.TASK,
            cause=self._header(traces.HEADER),
            link=self._header(traces.LINK),
            request=request_ids.current(),
        ):
            return self.run(*args, **kwargs)

    def _header(self, name: str) -> str:
        # A worker puts a message's headers into the request itself; a task applied in place has them apart.
        return str(self.request.get(name) or (self.request.get("headers") or {}).get(name) or "")


class Lifespan:
    """Report to uvicorn that the process may start and end; before it ends, spans that wait are sent."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(traces.stop)
        await send({"type": "lifespan.shutdown.complete"})
