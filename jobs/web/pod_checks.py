"""/clusters/NAME/pods: look at a cluster by pods of its own, and what the newest looks found. For platform administrators."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.pages.parts import allowed
from accounts.permissions import require_platform_admin
from common.errors import ClusterError, Conflict, InvalidInput
from jobs import clusters
from jobs.submission import cluster_checks, inspecting
from queues.models import Queue

from .clusters import FIRST
from .responses import Context, HtmxRequest, answer, target_id

SHOWN = 5


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def checks(request: HtmxRequest, name: str) -> HttpResponse:
    """Show them; a post begins one. The section asks for itself again while one is running."""
    allowed(lambda: require_platform_admin(request.user, "check clusters"))
    if not clusters.is_known(name):
        raise Http404
    if request.method != "POST":
        return _answer(request, name)
    given = {key: request.POST.get(key, "").strip() for key in ("image", "queue")}
    try:
        queue = Queue.objects.get(name=given["queue"]) if given["queue"] else None
        cluster_checks.start(cluster=name, by=request.user, image=given["image"], queue=queue)
    except (InvalidInput, Conflict, ClusterError) as error:
        return _answer(request, name, given=given, error=str(error), status=422)
    except Queue.DoesNotExist:
        return _answer(request, name, given=given, error=f"there is no queue {given['queue']}", status=422)
    return _answer(request, name) if request.htmx else redirect("cluster-pods", name=name)


def _answer(request: HtmxRequest, name: str, *, status: int = 200, **more: Any) -> HttpResponse:
    rows = cluster_checks.newest(name, most=SHOWN)
    shown = [(row, sorted(row.findings, key=lambda one: FIRST[one["state"]])) for row in rows]
    context: Context = {
        "cluster": inspecting.described(name),
        "shown": shown,
        "is_running": any(row.ended_at is None for row in rows),
        **more,
    }
    is_part = request.htmx and target_id(request) == "pod-checks"
    if is_part:  # htmx shows no part of an answer with an error
        return answer(request, template="jobs/_pod_checks.html", context=context)
    return answer(request, template="jobs/pod_checks.html", context=context, status=status)
