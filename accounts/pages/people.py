"""/people: invite people, deactivate them, and help those who cannot sign in. For platform administrators."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts import people
from accounts.models import Role, SecondFactor, Team
from accounts.permissions import require_platform_admin

from .parts import UserRequest, allowed, answer, attempt, knows_password, text

SHOWN = 100


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: UserRequest) -> HttpResponse:
    allowed(lambda: require_platform_admin(request.user, "manage people"))
    if request.method != "POST":
        return answer(request, template="accounts/people.html", context=_context(request, {}))
    fresh: dict[str, Any] = {}
    act, username = ACTS.get(text(request, "act")), text(request, "username")
    if act and knows_password(request):
        fresh = act(request, username)
    if fresh:  # a first password, shown in this one answer
        return answer(request, template="accounts/people.html", context=_context(request, fresh))
    return redirect(f"{reverse('people')}?{urlencode({'q': username})}" if act not in (None, _invite) else "people")


def _context(request: UserRequest, fresh: dict[str, Any]) -> dict[str, Any]:
    asked = request.GET.get("q", "").replace("\0", "").strip()[:150]
    rows = list(people.matching(asked).prefetch_related("memberships__team")[: SHOWN + 1])
    factors = SecondFactor.objects.filter(user__in=rows).exclude(confirmed_at=None).values_list("user_id", flat=True)
    return {
        "q": asked,
        "rows": rows[:SHOWN],
        "has_more": len(rows) > SHOWN,
        "shown": SHOWN,
        "factors": set(factors),
        "teams": Team.objects.order_by("name").values_list("name", flat=True),
        "roles": Role.choices,
        "days": people.FIRST_PASSWORD.days,
        **fresh,
    }


def _invite(request: UserRequest, username: str) -> dict[str, Any]:
    team = Team.objects.filter(name=text(request, "team")).first()
    made = partial(people.make, username=username, team=team, role=text(request, "role"), by=request.user)
    return _given_password(request, username, lambda: made()[1], done=f"{username} was invited.")


def _password(request: UserRequest, username: str) -> dict[str, Any]:
    given = partial(people.give_password, username=username, by=request.user)
    return _given_password(
        request, username, given, done=f"{username} has a new first password, and was signed out everywhere."
    )


def _factor(request: UserRequest, username: str) -> dict[str, Any]:
    removed = partial(people.remove_second_factor, username=username, by=request.user)
    attempt(request, removed, done=f"{username} signs in without a second factor, and can set up a new one.")
    return {}


def _deactivate(request: UserRequest, username: str) -> dict[str, Any]:
    ended = partial(people.set_active, username=username, is_active=False, by=request.user)
    attempt(request, ended, done=f"{username} can no longer sign in; sessions and tokens have stopped.")
    return {}


def _activate(request: UserRequest, username: str) -> dict[str, Any]:
    begun = partial(people.set_active, username=username, is_active=True, by=request.user)
    attempt(request, begun, done=f"{username} can sign in again.")
    return {}


def _given_password(request: UserRequest, username: str, change: Callable[[], str], *, done: str) -> dict[str, Any]:
    """Carry out a change that gives a first password, and return it for the page; empty if it was refused."""
    passwords: list[str] = []
    if not attempt(request, lambda: passwords.append(change()), done=done):
        return {}
    return {"password_of": username, "first_password": passwords[0]}


ACTS: dict[str, Callable[[UserRequest, str], dict[str, Any]]] = {
    "invite": _invite,
    "password": _password,
    "factor": _factor,
    "deactivate": _deactivate,
    "activate": _activate,
}
