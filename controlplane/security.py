"""Headers that tell the browser what a page of ours may do."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

# Nothing inline and nothing from elsewhere: whatever a log line or a job name smuggles into a page stays text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class ContentSecurityPolicy:
    """Adds the policy to every answer. Works for synchronous and asynchronous chains, so that streams stay streams."""

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
        return self._marked(self.get_response(request))  # type: ignore[arg-type]  # synchronous here

    async def _later(self, request: HttpRequest) -> HttpResponse:
        return self._marked(await self.get_response(request))  # type: ignore[misc]  # a coroutine here

    @staticmethod
    def _marked(response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
