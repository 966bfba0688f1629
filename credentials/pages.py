"""/teams/NAME/secrets, and one secret: which values it has, who uses it, and new versions of it."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import UserRequest, allowed, answer, text
from accounts.permissions import Act, may, require
from common.errors import Conflict, InvalidInput, Problem, Refused

from . import services
from .models import Kind, TeamSecret

INPUTS = ("name", "kind", "values", "file", "content", *services.LOGIN)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def secrets(request: UserRequest, team: str) -> HttpResponse:
    """List a team's secrets, and make one."""
    found, _ = services.of_team(request.user, team)
    if request.method != "POST":
        return _list(request, found)
    allowed(lambda: require(request.user, Act.MANAGE, found))
    name, kind = text(request, "name"), text(request, "kind")
    try:
        values = _values(request, kind)
        made = services.create(team=found, by=request.user, name=name, kind=kind, values=values)
    except (InvalidInput, Conflict) as error:
        more = {"given": {"name": name, "kind": kind}, "entered": request.POST, **_wrong(error, kind=kind)}
        if isinstance(error, Conflict):
            more = {**more, "wrong": {"name": str(error)}, "errors": []}
        return _list(request, found, part="credentials/_new.html", **more)
    messages.success(request, f"Secret {made.name} was created.")
    return redirect("team-secrets", team=team)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def secret(request: UserRequest, team: str, name: str) -> HttpResponse:
    """Show one secret with its versions; the posted `act` says what to do with it."""
    found = services.one_of(request.user, team, name)
    if request.method != "POST":
        return _page(request, found)
    allowed(lambda: require(request.user, Act.MANAGE, found.team))
    try:
        if text(request, "act") == "remove":
            services.remove(secret=found, by=request.user)
            messages.success(request, f"Secret {found.name} was removed.")
            return redirect("team-secrets", team=team)
        values: dict[str, str | None] = dict(_values(request, found.kind))
        values |= dict.fromkeys(set(request.POST.getlist("without")) - set(values))
        if not values:
            raise InvalidInput(Problem("", None, "Nothing was entered"))
        row = services.change(secret=found, by=request.user, values=values)
    except (InvalidInput, Conflict, Refused) as error:
        more = {"entered": request.POST, "act": text(request, "act"), **_wrong(error, kind=found.kind)}
        return _page(request, found, part="" if more["act"] == "remove" else "credentials/_change.html", **more)
    messages.success(request, f"Version {row.version} of {row.name} was saved; the next attempt of each job gets it.")
    return redirect("team-secret", team=team, name=name)


def _values(request: UserRequest, kind: str) -> dict[str, str]:
    """Return the values that were entered. Raises InvalidInput. A browser sends line ends as CRLF, which no value keeps."""
    if kind == Kind.REGISTRY:
        given = {key: request.POST.get(key, "").strip() for key in services.LOGIN}
        return {key: value for key, value in given.items() if value}
    if kind == Kind.FILE:
        name, content = text(request, "file"), request.POST.get("content", "").replace("\r\n", "\n")
        upload = request.FILES.get("upload")
        if upload is not None:
            if (upload.size or 0) > services.MOST_BYTES:
                raise InvalidInput(services.too_large())
            try:
                content = upload.read().decode()
            except UnicodeDecodeError as error:
                raise InvalidInput(services.no_text()) from error
            name = name or upload.name or ""
        return {name: content} if name or content else {}
    return services.parse_lines(request.POST.get("values", ""))


def _wrong(error: InvalidInput | Conflict | Refused, *, kind: str) -> dict[str, Any]:
    """Return what is wrong by the input that it is about, and as `errors` what is about none. It shows no value."""
    if not isinstance(error, InvalidInput):
        return {"errors": [str(error)]}
    wrong: dict[str, str] = {}
    errors = []
    for one in error.problems:
        name, _, key = one.field.partition(".")
        place = _place(kind, key) if name == "values" else name
        is_named = bool(key) and place not in ("file", key)
        words = f"{key} {one.message}" if is_named else one.message[:1].upper() + one.message[1:]
        if place in INPUTS:
            wrong[place] = f"{wrong[place]}; {words}" if place in wrong else words
        else:
            errors.append(words)
    return {"wrong": wrong, "errors": errors}


def _place(kind: str, key: str) -> str:
    """Return the input that a problem with one value is shown at; with all values, if `key` is empty."""
    if kind == Kind.REGISTRY:
        return key
    if kind == Kind.FILE:
        return "file" if key and not services.FILE.fullmatch(key) else "content"
    return "values"


def _list(request: UserRequest, team: Team, *, part: str | None = None, **more: Any) -> HttpResponse:
    rows = services.of_team(request.user, team.name)[1]
    context = {
        "team": team,
        "rows": [(row, row.keys, services.used_by(row)) for row in rows],
        "kinds": Kind.choices,
        "may_manage": may(request.user, Act.MANAGE, team),
        **more,
    }
    return _answer(request, "credentials/list.html", context, part=part)


def _page(request: UserRequest, row: TeamSecret, *, part: str | None = None, **more: Any) -> HttpResponse:
    context = {
        "secret": row,
        "team": row.team,
        "keys": row.keys,
        "users": services.used_by(row),
        "may_manage": may(request.user, Act.MANAGE, row.team),
        **more,
    }
    return _answer(request, "credentials/detail.html", context, part=part)


def _answer(request: UserRequest, template: str, context: dict[str, Any], *, part: str | None) -> HttpResponse:
    """Return the page; for a refused form sent by htmx only this `part`, in place, so that the values in it stay."""
    if part and request.htmx:
        return answer(request, template=part, context=context)
    return answer(request, template=template, context=context, status=200 if part is None else 422)
