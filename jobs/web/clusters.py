"""/clusters: the clusters that are configured, and whether they have what Muster needs. For platform administrators."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from accounts.pages.parts import allowed
from accounts.permissions import require_platform_admin
from jobs import clusters
from jobs.submission import inspecting

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
    """Show a cluster. What it says of itself comes with a request of its own, as it may take seconds."""
    allowed(lambda: require_platform_admin(request.user, "check clusters"))
    if not clusters.is_known(name):
        raise Http404
    context = {
        "cluster": inspecting.described(name),
        "is_checked": target_id(request) == "check" or "check" in request.GET,
    }
    if context["is_checked"]:
        context["found"] = sorted(inspecting.inspect(name), key=lambda one: FIRST[one.state])
    template = "jobs/_cluster_check.html" if target_id(request) == "check" else "jobs/cluster.html"
    return answer(request, template=template, context=context)
