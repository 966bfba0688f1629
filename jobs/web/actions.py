"""POST /jobs/<id>/cancel and the like: one service call each, then the new header, or back to the page."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from common.errors import Conflict, InvalidInput, NotAllowed
from common.http.error_responses import refusal
from jobs import services
from jobs.logs import retention
from jobs.models import Job

from .detail import common, state_context
from .responses import HtmxRequest, answer, readable_job, whole

INTENTS: dict[str, Callable[..., Any]] = {
    "cancel": services.cancel,
    "suspend": services.suspend,
    "resume": services.resume,
}
BULK = {**INTENTS, "resubmit": services.resubmit}
DONE = {"cancel": "Cancelled", "suspend": "Suspended", "resume": "Resumed", "resubmit": "Resubmitted"}
MOST_CHOSEN = 100  # a page of the list
SHOWN_REFUSALS = 5


@login_required
@require_POST
def act(request: HtmxRequest, pk: int, verb: str) -> HttpResponse:
    job = readable_job(request, pk=pk)
    service = INTENTS[verb]
    if verb == "cancel" and request.POST.get("now"):
        service = partial(service, is_now=True)
    try:
        service(job=job, by=request.user)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except (Conflict, InvalidInput) as error:
        if request.htmx:
            return refusal(request, status=409 if isinstance(error, Conflict) else 422, detail=str(error))
        messages.error(request, str(error))
    if not request.htmx:
        return redirect("job", pk=pk)
    job = readable_job(request, pk=pk)
    context = {**common(request, job=job), **state_context(request, job=job)}
    return answer(request, template="jobs/_state.html", context=context)


@login_required
@require_POST
def resubmit(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    try:
        return redirect("job", pk=services.resubmit(job=job, by=request.user)[0].pk)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except (Conflict, InvalidInput) as error:
        messages.error(request, str(error))
        return redirect("job", pk=pk)


@login_required
@require_POST
def bulk(request: HtmxRequest) -> HttpResponse:
    """Do one thing with all jobs chosen in the list, and say how it went."""
    verb, numbers = request.POST.get("act", ""), [whole(text) for text in request.POST.getlist("job")[:MOST_CHOSEN]]
    if verb not in BULK:
        raise BadRequest("act must be one of " + ", ".join(BULK))
    found = Job.objects.readable_by(request.user).select_related("team", "queue", "user", "workspace", "template")
    jobs = found.filter(pk__in=[number for number in numbers if number]).order_by("pk")
    done, refused = 0, []
    for job in jobs:
        if job.is_finished and verb != "resubmit":
            refused.append(f"{job.name}: it has ended already")
            continue
        try:
            BULK[verb](job=job, by=request.user)
            done += 1
        except (NotAllowed, Conflict, InvalidInput) as error:
            refused.append(f"{job.name}: {error}")
    if done or not refused:
        messages.success(request, f"{DONE[verb]}: {done} job{'' if done == 1 else 's'}.")
    for words in refused[:SHOWN_REFUSALS]:
        messages.error(request, words)
    if (more := len(refused) - SHOWN_REFUSALS) > 0:
        messages.error(request, f"and {more} more that were refused")
    back = request.POST.get("back", "")
    is_ours = back.startswith(reverse("jobs")) and url_has_allowed_host_and_scheme(back, allowed_hosts=None)
    return redirect(back if is_ours else "jobs")


@login_required
@require_POST
def delete_log(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    if notice := _attempt(retention.delete_log, job, request):
        messages.error(request, notice)
    return redirect("job", pk=pk)


def _attempt(service: Callable[..., Any], job: Job, request: HtmxRequest) -> str:
    """Call the service; return why it was refused, "" if it succeeded."""
    try:
        service(job=job, by=request.user)
        return ""
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except Conflict as error:
        return str(error)
