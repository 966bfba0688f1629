"""The base of our middlewares: one class for synchronous and asynchronous chains, so that streams stay streams."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

ALIVE = "/healthz"  # authenticates no one: it answers while the database is away, whatever cookie the request carries


class Middleware:
    """`around` is active while a request is answered, `after` receives the response. Neither may wait for anything."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self.is_async:
            return self._later(request)
        with self.around(request):
            return self.after(self.get_response(request))  # type: ignore[arg-type]  # synchronous here

    async def _later(self, request: HttpRequest) -> HttpResponse:
        with self.around(request):
            return self.after(await self.get_response(request))  # type: ignore[misc]  # a coroutine here

    def around(self, request: HttpRequest) -> AbstractContextManager[object]:
        return nullcontext()

    def after(self, response: HttpResponse) -> HttpResponse:
        return response
