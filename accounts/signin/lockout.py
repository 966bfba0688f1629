"""The response after too many failed sign-ins. django-axes counts, per user name and address together."""

import math
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.models import User
from common.http.error_responses import is_program, refusal
from common.http.request_origin import origin_of


def client_address(request: HttpRequest) -> str | None:
    """Return the connection's address, or the one a trusted proxy reports (MUSTER_TRUSTED_PROXIES).

    Never what a client claims.
    """
    return origin_of(request).ip


def who(username: str, ip_address: str, user_agent: str, path_info: Any, request: HttpRequest) -> str:
    """Return how the log names the user of an attempt.

    An unknown name is not written down: people type their password there by mistake.
    """
    is_known = bool(username) and "\0" not in username and User.objects.filter(username=username).exists()
    return f"{username if is_known else 'an unknown name'} from {ip_address}"


def answer(
    request: HttpRequest, response: HttpResponse | None = None, credentials: dict[str, str] | None = None
) -> HttpResponse:
    name = str((credentials or {}).get("username") or "")[:150]
    seconds = _seconds_left(name, client_address(request))
    detail = (
        f"{settings.AXES_FAILURE_LIMIT} failed sign-ins for this name from your address. "
        f"Try again in {math.ceil(seconds / 60)} minutes; the account can still be used from other addresses."
    )
    if is_program(request):
        return refusal(request, status=429, detail=detail, retry_after=seconds)
    context = {"form": AuthenticationForm(request, initial={"username": name}), "notice": detail}
    page = render(request, "accounts/login.html", context, status=429)
    page["Retry-After"] = str(seconds)
    return page


def _seconds_left(name: str, address: str | None) -> int:
    last = (
        AccessAttempt.objects.filter(username=name, ip_address=address)
        .order_by("-attempt_time")
        .values_list("attempt_time", flat=True)
        .first()
    )
    until = (last or timezone.now()) + settings.AXES_COOLOFF_TIME
    return max(1, math.ceil((until - timezone.now()).total_seconds()))
