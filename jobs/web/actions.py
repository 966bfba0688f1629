"""POST /jobs/<id>/cancel and the like: one service call each, then the new header, or back to the page."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from common.error_responses import refusal
from common.errors import Conflict, InvalidInput, NotAllowed
from jobs import services
from jobs.logs import retention
from jobs.models import Job

from .detail import common, state_context
from .parts import Request, answer, readable_job

INTENTS: dict[str, Callable[..., Any]] = {
    "cancel": services.cancel,
    "suspend": services.suspend,
    "resume": services.resume,
}


@login_required
@require_POST
def act(request: Request, pk: int, verb: str) -> HttpResponse:
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
def resubmit(request: Request, pk: int) -> HttpResponse:
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
def delete_log(request: Request, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    if notice := _attempt(retention.delete_log, job, request):
        messages.error(request, notice)
    return redirect("job", pk=pk)


def _attempt(service: Callable[..., Any], job: Job, request: Request) -> str:
    """Call the service; return why it was refused, "" if it succeeded."""
    try:
        service(job=job, by=request.user)
        return ""
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except Conflict as error:
        return str(error)
