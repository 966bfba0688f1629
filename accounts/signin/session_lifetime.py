"""How long a sign-in lasts: up to a maximum age, and a maximum idle time. See docs/sign-in.md."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from common.http.middleware import ALIVE
from common.http.request_origin import origin

SINCE, SEEN, FROM, AGENT = "signed_in_at", "seen_at", "from", "agent"
APART = ("/api/v1/login",)  # returns a token: the session of a browser that sends its cookie along is unrelated
NOTED_EVERY_SECONDS = 300  # one write in five minutes, not one per request


@receiver(user_logged_in, dispatch_uid="muster-session-begins")
def begin(sender: object, request: HttpRequest | None, **_: Any) -> None:
    session = getattr(request, "session", None)
    if session is not None:
        session[SINCE] = session[SEEN] = int(time.time())
        session[FROM], session[AGENT] = origin().ip, origin().user_agent


def is_over(data: Mapping[str, Any], now: int) -> bool:
    """Return whether the session ended by age or by idle time."""
    since, seen = data.get(SINCE, now), data.get(SEEN, now)
    return bool(now - since > settings.MUSTER_SESSION_SECONDS or now - seen > settings.MUSTER_SESSION_IDLE_SECONDS)


class SessionLifetime:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        if request.path_info == ALIVE or request.path_info in APART:
            return
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or SESSION_KEY not in request.session:
            return
        now = int(time.time())
        # A session without a start time predates this record, and starts now.
        since, seen = request.session.get(SINCE, now), request.session.get(SEEN, 0 if SINCE in request.session else now)
        if now - since > settings.MUSTER_SESSION_SECONDS or now - seen > settings.MUSTER_SESSION_IDLE_SECONDS:
            request.session.flush()
            request.user = AnonymousUser()
        elif now - seen > NOTED_EVERY_SECONDS or SINCE not in request.session:
            request.session[SINCE], request.session[SEEN] = since, now
