"""What these pages share: trying a change and saying in words what went against it."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth import authenticate
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.models import User
from accounts.signin import flow
from common.errors import Conflict, InvalidInput, NotAllowed


class Request(HttpRequest):
    """What reaches a page behind `login_required`; for types only."""

    user: User


def answer(request: HttpRequest, *, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """What is shown belongs to one person at one moment: no proxy and no back button keeps it."""
    response = render(request, template, context, status=status)
    response["Cache-Control"] = "private, no-store"
    return response


def attempt(request: HttpRequest, change: Callable[[], Any], *, done: str) -> bool:
    """Carry out a change and say so, or what is wrong with it; what is not allowed at all is a 403."""
    try:
        change()
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except InvalidInput as error:
        messages.error(request, " ".join(f"{problem.value} {problem.message}." for problem in error.problems))
        return False
    except Conflict as error:
        messages.error(request, f"{error}.")
        return False
    messages.success(request, done)
    return True


def knows_password(request: HttpRequest) -> bool:
    """Whoever found a session open must not change how its owner signs in. Tries count as sign-ins do."""
    assert isinstance(request.user, User)
    name, password = request.user.get_username(), request.POST.get("password", "")[:512]
    if authenticate(request, username=name, password=password) == request.user:
        return True
    flow.note_failure(name, way="account")
    messages.error(request, "This is not your present password.")
    return False


def text(request: HttpRequest, name: str) -> str:
    """A field of a form, as people typed it; NUL, which Postgres stores nowhere, is taken out."""
    return request.POST.get(name, "").replace("\0", "").strip()[:150]
