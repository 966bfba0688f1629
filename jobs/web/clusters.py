"""/clusters: the clusters that are configured, and whether they have what Muster needs, for platform administrators; and each with its nodes."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from accounts.pages.parts import allowed
from accounts.permissions import is_platform_admin, require_platform_admin
from jobs import clusters
from jobs.analysis import cluster_nodes
from jobs.submission import inspecting

from .cluster_nodes import section
from .responses import HtmxRequest, answer, target_id

FIRST = {"wrong": 0, "note": 1, "ok": 2}


@login_required
@require_safe
def page(request: HtmxRequest) -> HttpResponse:
    allowed(lambda: require_platform_admin(request.user, "see the clusters"))
    rows = [inspecting.described(alias) for alias in sorted(clusters.names())]
    return answer(request, template="jobs/clusters.html", context={"rows": rows})


@login_required
@require_safe
def cluster(request: HtmxRequest, name: str) -> HttpResponse:
    """Show a cluster with its nodes to those who may submit to it, and to platform administrators what it lacks.

    What it says of itself comes with a request of its own, as it may take seconds.
    """
    if not cluster_nodes.may_see(request.user, name):
        raise Http404
    part, is_admin = target_id(request), is_platform_admin(request.user)
    context = {"cluster": inspecting.described(name), "is_admin": is_admin}
    if part == "nodes":
        return answer(request, template="jobs/_cluster_nodes.html", context={**context, **section(request, name)})
    if part == "check":
        allowed(lambda: require_platform_admin(request.user, "check clusters"))
    context["is_checked"] = is_admin and (part == "check" or "check" in request.GET)
    if context["is_checked"]:
        context["found"] = sorted(inspecting.inspect(name), key=lambda one: FIRST[one.state])
    if part == "check":
        return answer(request, template="jobs/_cluster_check.html", context=context)
    return answer(request, template="jobs/cluster.html", context={**context, **section(request, name)})
