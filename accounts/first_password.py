"""Whoever got a password from somebody else chooses their own before anything else; see docs/security.md."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.exposure import open_to_others
from controlplane.refusals import is_program, refusal

from .models import User

WAY = "/account/password"
# What somebody may open before: the change itself, the doors, and what tells nobody anything.
OPEN = frozenset({"account-password", "login", "api-login", "logout", "healthz", "readyz"})
WORDS = f"this password came from somebody else; sign in on the web and choose your own at {WAY} first"


def must_change(user: User) -> bool:
    """The administrator that bin/demo makes is let be while only this machine is answered: whoever reads the password on
    that terminal already has the files and the database. Once others are answered it is asked for like everybody's."""
    if user.first_password_until is None:
        return False
    return not (user.is_superuser and not open_to_others(settings.ALLOWED_HOSTS))


def is_over(user: User) -> bool:
    return must_change(user) and user.first_password_until is not None and user.first_password_until < timezone.now()


class OwnPasswordFirst:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or _is_open(request):
            return None
        if not isinstance(request.user, User) or not must_change(request.user):
            return None
        if is_program(request):
            return refusal(request, status=403, detail=WORDS)
        return redirect("account-password")


def _is_open(request: HttpRequest) -> bool:
    found = request.resolver_match
    return found is not None and found.url_name in OPEN
