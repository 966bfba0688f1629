"""/teams/NAME/volumes: shared folders of a team, with what their clusters and the agents of jobs say of them."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import allowed
from accounts.permissions import Act, may, require
from common.errors import Conflict, InvalidInput
from jobs.submission import storage
from queues import clusters
from volumes import keeping, services
from volumes.models import AccessMode, Volume

from .responses import Context, HtmxRequest, answer

INPUTS = ("name", "cluster", "size", "claim", "storage_class", "access_mode", "mount_path", "is_read_only")
TEXTS = ("size", "claim", "storage_class", "access_mode", "mount_path")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def volumes(request: HtmxRequest, team: str) -> HttpResponse:
    """List a team's volumes, and make one."""
    found, _ = services.of_team(request.user, team)
    if request.method != "POST":
        return _list(request, found)
    allowed(lambda: require(request.user, Act.MANAGE, found))
    given = {name: request.POST.get(name, "").strip() for name in ("name", "cluster", *TEXTS)}
    values: dict[str, Any] = {name: value for name, value in given.items() if value}
    values = {"name": "", "cluster": "", **values}
    if request.POST.get("is_read_only"):
        values["is_read_only"] = True
    try:
        storage.check(values, cluster=values["cluster"])
        made = services.create(team=found, by=request.user, **values)
    except (InvalidInput, Conflict) as error:
        wrong = {"wrong": {"name": str(error)}} if isinstance(error, Conflict) else _wrong(error)
        return _list(request, found, given={**given, "is_read_only": "is_read_only" in values}, **wrong, status=422)
    messages.success(request, f"Volume {made.name} was created; its storage is made with its first use.")
    return redirect("team-volumes", team=team)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def volume(request: HtmxRequest, team: str, name: str) -> HttpResponse:
    """Show one volume; the posted `act` says what to do with it."""
    found = services.one_of(request.user, team, name)
    if request.method != "POST":
        return _page(request, found)
    allowed(lambda: require(request.user, Act.MANAGE, found.team))
    try:
        if request.POST.get("act") == "remove":
            services.remove(volume=found, by=request.user)
            messages.success(request, f"Volume {found.name} is being deleted.")
            return redirect("team-volumes", team=team)
        values: dict[str, Any] = {"mount_path": request.POST.get("mount_path", "").strip()}
        values["is_read_only"] = bool(request.POST.get("is_read_only"))
        if size := request.POST.get("size", "").strip():
            values["size"] = size
        storage.check(values, cluster=found.cluster)
        services.change(volume=found, by=request.user, **values)
    except (InvalidInput, Conflict) as error:
        wrong = {"errors": [str(error)]} if isinstance(error, Conflict) else _wrong(error)
        more: Context = {"act": request.POST.get("act"), "given": {"size": "", **request.POST.dict()}, **wrong}
        return _page(request, found, **more, status=422)
    messages.success(request, f"Volume {found.name} was changed.")
    return redirect("team-volume", team=team, name=name)


def _wrong(error: InvalidInput) -> Context:
    """Return what is wrong by the input that it is about, and as `errors` what is about none."""
    wrong = {one.field: one.message[:1].upper() + one.message[1:] for one in error.problems if one.field in INPUTS}
    return {
        "wrong": wrong,
        "errors": [f"{one.field} {one.message}" for one in error.problems if one.field not in wrong],
    }


def _list(request: HtmxRequest, team: Team, *, status: int = 200, **more: Any) -> HttpResponse:
    context: Context = {
        "team": team,
        "rows": list(services.of_team(request.user, team.name)[1]),
        "clusters": sorted(clusters.names()),
        "modes": AccessMode.choices,
        "may_manage": may(request.user, Act.MANAGE, team),
        **more,
    }
    return answer(request, template="volumes/list.html", context=context, status=status)


def _page(request: HtmxRequest, row: Volume, *, status: int = 200, **more: Any) -> HttpResponse:
    context: Context = {
        "volume": row,
        "team": row.team,
        "users": services.used_by(row),
        "has_claim": storage.has_claims(row.cluster),
        "keeper": keeping.of_volume(row),
        "variable": row.name.upper().replace("-", "_"),
        "may_manage": may(request.user, Act.MANAGE, row.team) and row.removal_asked_at is None,
        **more,
    }
    return answer(request, template="volumes/detail.html", context=context, status=status)
