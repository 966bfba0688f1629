"""What a user must do before anything else: choose their own password, set up a second factor."""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts.models import User
from common.http.error_responses import is_program, refusal

from . import initial_password, second_factor

# Open before that: the sign-in routes, and routes that reveal nothing.
OPEN = frozenset({"login", "login-code", "api-login", "logout", "healthz", "readyz"})


class FirstThing(NamedTuple):
    page: str
    words: str


def first_thing(user: User) -> FirstThing | None:
    if initial_password.must_change(user):
        return FirstThing("account-password", initial_password.WORDS)
    if second_factor.is_missing(user):
        return FirstThing("account-second-factor", second_factor.WORDS)
    return None


class FirstThings:
    """Redirect every user with a session there, whatever page they request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        asked = request.resolver_match.url_name if request.resolver_match else None
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or asked in OPEN:
            return None
        thing = first_thing(request.user) if isinstance(request.user, User) else None
        if thing is None or thing.page == asked:
            return None
        return refusal(request, status=403, detail=thing.words) if is_program(request) else redirect(thing.page)
