"""/nodes: nodes that new pods stay away from, and nodes that failed several jobs. For platform administrators."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from accounts.pages.parts import allowed
from accounts.permissions import require_platform_admin
from common.errors import Conflict, InvalidInput
from jobs.analysis import suspects
from jobs.submission import nodes
from queues import excluded
from queues.models import ExcludedNode

from .responses import Context, HtmxRequest, answer

INPUTS = ("cluster", "name", "reason")
MOST_NUMBER = 2**63 - 1


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HtmxRequest) -> HttpResponse:
    """Show them; the posted `act` excludes or readmits a node."""
    allowed(lambda: require_platform_admin(request.user, "exclude nodes"))
    if request.method != "POST":
        return _answer(request)
    if request.POST.get("act") == "readmit":
        return _readmit(request)
    given = {name: request.POST.get(name, "").strip() for name in INPUTS}
    try:
        row = nodes.exclude(**given, by=request.user)
    except Conflict as error:
        return _answer(request, given=given, errors=[str(error)], status=422)
    except InvalidInput as error:
        wrong = {one.field: one.message[:1].upper() + one.message[1:] for one in error.problems}
        return _answer(request, given=given, wrong=wrong, status=422)
    messages.success(request, f"New pods stay away from {row.name}.")
    return redirect("nodes")


def _readmit(request: HtmxRequest) -> HttpResponse:
    number = request.POST.get("id", "")
    pk = int(number) if number.isdecimal() and int(number) <= MOST_NUMBER else 0
    row = get_object_or_404(ExcludedNode, pk=pk)
    excluded.readmit(row=row, by=request.user)
    messages.success(request, f"New pods may run on {row.name} again.")
    return redirect("nodes")


def _answer(request: HtmxRequest, *, status: int = 200, **more: Any) -> HttpResponse:
    clusters = nodes.with_nodes()
    rows = list(ExcludedNode.objects.filter(readmitted_at=None).select_related("excluded_by"))
    running = {one: suspects.running_on(one, [row.name for row in rows if row.cluster == one]) for one in clusters}
    context: Context = {
        "excluded": [(row, running.get(row.cluster, {}).get(row.name, 0)) for row in rows],
        "suspects": suspects.suspects(timezone.now(), clusters=clusters),
        "clusters": clusters,
        "most_reason": excluded.MOST_REASON,
        **more,
    }
    return answer(request, template="jobs/nodes.html", context=context, status=status)
