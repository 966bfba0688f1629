"""/teams/NAME/secrets, and one secret: which values it has, who uses it, and new versions of it."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import UserRequest, answer, text
from accounts.permissions import Act, may, require
from common.errors import Conflict, InvalidInput, NotAllowed, Refused

from . import services
from .models import Kind, TeamSecret


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def secrets(request: UserRequest, team: str) -> HttpResponse:
    """List a team's secrets, and make one."""
    found, _ = services.of_team(request.user, team)
    if request.method != "POST":
        return _list(request, found)
    _require_admin(request, found)
    name, kind = text(request, "name"), text(request, "kind")
    try:
        values = _values(request, kind)
        made = services.create(team=found, by=request.user, name=name, kind=kind, values=values)
    except (InvalidInput, Conflict) as error:
        return _list(request, found, errors=_errors(error), given={"name": name, "kind": kind}, status=422)
    messages.success(request, f"Secret {made.name} was created.")
    return redirect("team-secrets", team=team)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def secret(request: UserRequest, team: str, name: str) -> HttpResponse:
    """Show one secret with its versions; the posted `act` says what to do with it."""
    found = services.one_of(request.user, team, name)
    if request.method != "POST":
        return _page(request, found)
    _require_admin(request, found.team)
    try:
        if text(request, "act") == "remove":
            services.remove(secret=found, by=request.user)
            messages.success(request, f"Secret {found.name} was removed.")
            return redirect("team-secrets", team=team)
        values: dict[str, str | None] = dict(_values(request, found.kind))
        values |= dict.fromkeys(set(request.POST.getlist("without")) - set(values))
        row = services.change(secret=found, by=request.user, values=values)
    except (InvalidInput, Conflict, Refused) as error:
        return _page(request, found, errors=_errors(error), status=422)
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


def _errors(error: InvalidInput | Conflict | Refused) -> list[str]:
    if isinstance(error, InvalidInput):
        return [f"{one.field} {one.message}" for one in error.problems]
    return [str(error)]


def _require_admin(request: UserRequest, team: Team) -> None:
    try:
        require(request.user, Act.MANAGE, team)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error


def _list(request: UserRequest, team: Team, *, status: int = 200, **more: Any) -> HttpResponse:
    rows = services.of_team(request.user, team.name)[1]
    context = {
        "team": team,
        "rows": [(row, _keys(row), services.used_by(row)) for row in rows],
        "kinds": Kind.choices,
        "may_manage": may(request.user, Act.MANAGE, team),
        **more,
    }
    return answer(request, template="credentials/list.html", context=context, status=status)


def _page(request: UserRequest, row: TeamSecret, *, status: int = 200, **more: Any) -> HttpResponse:
    context = {
        "secret": row,
        "team": row.team,
        "keys": _keys(row),
        "users": services.used_by(row),
        "may_manage": may(request.user, Act.MANAGE, row.team),
        **more,
    }
    return answer(request, template="credentials/detail.html", context=context, status=status)


def _keys(row: TeamSecret) -> list[str]:
    return next((list(one.keys) for one in row.versions.all() if one.number == row.version), [])
