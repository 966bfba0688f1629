"""/account/second-factor: set it up, see the recovery codes once, remove it."""

from collections.abc import Callable
from typing import Any

import segno
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from accounts.models import SecondFactor, User
from accounts.signin import second_factor, session_list
from common.errors import Conflict, InvalidInput

from .parts import UserRequest, answer, knows_password, text


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: UserRequest) -> HttpResponse:
    codes: list[str] = []
    if act := ACTS.get(request.POST.get("act", "")):
        try:
            codes = act(request) or []
        except InvalidInput as error:
            messages.error(request, " ".join(f"The {one.field} {one.message}." for one in error.problems))
        except Conflict as error:
            messages.error(request, f"{error}.")
    return answer(request, template="accounts/second_factor.html", context=_context(request.user, codes))


def _context(user: User, codes: list[str]) -> dict[str, Any]:
    row = SecondFactor.objects.filter(user=user).first()
    secret = second_factor.pending(user)
    return {
        "row": row if row and row.confirmed_at else None,
        "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        "address": (address := second_factor.address(user, secret) if secret else ""),
        "drawing": segno.make(address, error="m").svg_data_uri(scale=4, border=3) if address else "",
        "codes": codes,
        "left": second_factor.codes_left(user),
        "is_required": second_factor.is_required(user),
    }


def _begin(request: UserRequest) -> None:
    second_factor.begin(request.user)


def _confirm(request: UserRequest) -> list[str]:
    if not knows_password(request):
        return []
    codes = second_factor.confirm(request.user, text(request, "code"))
    _end_others(request)
    return codes


def _codes(request: UserRequest) -> list[str]:
    return second_factor.new_codes(request.user) if knows_password(request) else []


def _remove(request: UserRequest) -> None:
    if knows_password(request):
        second_factor.remove(request.user, by=request.user)
        _end_others(request)
        messages.success(request, "Your second factor was removed; from now on you sign in with your password only.")


def _end_others(request: UserRequest) -> None:
    """End the user's other sessions: they did not sign in the way that is now required."""
    session_list.end_others(request.user, this=request.session.session_key)


ACTS: dict[str, Callable[[UserRequest], list[str] | None]] = {
    "begin": _begin,
    "confirm": _confirm,
    "codes": _codes,
    "remove": _remove,
}
