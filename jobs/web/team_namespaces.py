"""The namespaces of teams on a cluster's page: who has one, and a form that gives one to a team. For platform administrators."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import allowed
from accounts.permissions import require_platform_admin
from common.errors import Conflict, InvalidInput
from jobs import clusters
from jobs.submission import team_namespaces
from queues import namespaces

from .responses import HtmxRequest, answer


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HtmxRequest, name: str) -> HttpResponse:
    """List them; the posted `act` gives a namespace to a team, or takes it away."""
    allowed(lambda: require_platform_admin(request.user, "give namespaces to teams"))
    if not clusters.is_known(name) or not clusters.backend(name).MAKES_PODS:
        raise Http404
    if request.method != "POST":
        return _answer(request, name)
    given = {one: request.POST.get(one, "").replace("\0", "").strip() for one in ("team", "namespace", "make")}
    team = Team.objects.filter(name=given["team"]).first()
    if team is None:
        return _answer(request, name, given=given, wrong={"team": ["Choose a team"]}, status=422)
    try:
        if request.POST.get("act") == "release":
            team_namespaces.release(team=team, cluster=name, by=request.user)
            messages.success(request, f"New jobs of {team.name} are made in the cluster's own namespace again.")
        else:
            row = team_namespaces.bind(
                team=team,
                cluster=name,
                namespace=given["namespace"],
                by=request.user,
                make=request.POST.get("make") == "on",
            )
            messages.success(request, f"New jobs of {team.name} are made in namespace {row.namespace}.")
    except Conflict as error:
        return _answer(request, name, given=given, errors=[str(error)], status=409)
    except InvalidInput as error:
        wrong: dict[str, list[str]] = {}
        for one in error.problems:
            wrong.setdefault(one.field, []).append(f"{one.value} {one.message}")
        return _answer(request, name, given=given, wrong=wrong, status=422)
    return redirect("cluster-namespaces", name)


def _answer(request: HtmxRequest, name: str, *, status: int = 200, **more: Any) -> HttpResponse:
    try:
        home = clusters.namespace_of(name)
    except Exception:  # its credentials cannot be read, which its check tells
        home = ""
    context = {
        "cluster": name, "rows": namespaces.bound(name), "home": home,
        "teams": list(Team.objects.order_by("name").values_list("name", flat=True)), **more,
    }  # fmt: skip
    return answer(request, template="jobs/cluster_namespaces.html", context=context, status=status)
