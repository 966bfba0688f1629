"""Shared parts of these pages: trying a change, and showing why it failed."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from accounts.models import User
from accounts.signin import flow
from common.errors import Conflict, InvalidInput, NotAllowed


class UserRequest(HttpRequest):
    """The request that a page behind `login_required` receives; for types only."""

    user: User
    htmx: HtmxDetails


def answer(request: HttpRequest, *, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """Render a page that no proxy and no back button may keep: it is for one person at one moment."""
    response = render(request, template, context, status=status)
    response["Cache-Control"] = "private, no-store"
    return response


def allowed(ask: Callable[[], None]) -> None:
    """Answer 403 with its reason where `ask` raises NotAllowed."""
    try:
        ask()
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error


def attempt(request: HttpRequest, change: Callable[[], Any], *, done: str) -> bool:
    """Carry out a change and report success, or what is wrong with it.

    Raises PermissionDenied where it is not allowed.
    """
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
    """Check the posted password; on failure add a message, and count the try as a sign-in.

    Someone who found a session open must not be able to change how its owner signs in.
    """
    assert isinstance(request.user, User)
    if flow.is_password_of(request, request.user, request.POST.get("password", "")):
        return True
    messages.error(request, "This is not your current password.")
    return False


def text(request: HttpRequest, name: str) -> str:
    """Return a form field as typed, cut to 150 characters, without NUL, which Postgres cannot store."""
    return request.POST.get(name, "").replace("\0", "").strip()[:150]
