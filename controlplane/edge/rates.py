"""Request rate limits, with the buckets of common/limits/rates.py, by user, address or agent.

Limits are generous: they stop runaway scripts and password guessing, not people, agents or a busy script.
"""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from common.errors import Busy
from common.http.error_responses import refusal
from common.http.middleware import ALIVE
from common.http.request_origin import origin_of
from common.limits.shared_rates import buckets
from jobs.ingest.agent_tokens import bearer


class UserRate(BaseThrottle):
    """Limit the REST API by user, whichever of their tokens or sessions is used."""

    seconds = 0

    def allow_request(self, request: Request, view: Any) -> bool:
        if request.user.is_authenticated:
            self.seconds = buckets.take(f"user:{request.user.pk}", per_minute=settings.MUSTER_RATE_USER)
        return not self.seconds

    def wait(self) -> float | None:
        return self.seconds or None


class Rates:
    """Limit everything that is not the REST API: sign-in by address, agents by token, pages by user."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        """Here and not in __call__: static files are answered before a view is resolved, and do not count."""
        who, per_minute = _counted(request)
        seconds = buckets.take(who, per_minute=per_minute) if who else 0
        if not seconds:
            return None
        detail = f"more than {per_minute} requests a minute; try again in {seconds} s"
        return refusal(request, status=429, detail=detail, retry_after=seconds)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Handle Busy for pages; the REST API's own handler does the same."""
        if not isinstance(exception, Busy):
            return None
        return refusal(request, status=429, detail=str(exception), retry_after=exception.seconds)


def _counted(request: HttpRequest) -> tuple[str, int]:
    path = request.path_info
    if path == ALIVE:
        return "", 0
    if path in ("/login", "/login/code", "/api/v1/login") and request.method == "POST":
        return f"login:{origin_of(request).ip}", settings.MUSTER_RATE_LOGIN
    if path.startswith("/agent/"):
        identity = bearer(request.headers.get("Authorization", ""))
        return f"agent:{identity or origin_of(request).ip}", settings.MUSTER_RATE_AGENT
    if not path.startswith("/api/v1/") and request.user.is_authenticated:
        return f"user:{request.user.pk}", settings.MUSTER_RATE_USER
    return "", 0
