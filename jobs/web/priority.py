"""/jobs/ID/priority: another priority for a job that has not ended, with what that does to it and to others."""

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts.pages.parts import allowed
from accounts.permissions import Act, require
from common.errors import Conflict, InvalidInput
from common.http.forms import ServiceForm
from jobs import services
from jobs.models import Job
from jobs.scheduling import what_if
from queues.rules import priority_problems

from .responses import Context, HtmxRequest, answer, readable_job, target_id


class PriorityForm(ServiceForm):
    """Checks no rule of its own: `services.set_priority` does."""

    priority = forms.IntegerField()


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HtmxRequest, pk: int) -> HttpResponse:
    job = readable_job(request, pk=pk)
    allowed(lambda: require(request.user, Act.CONTROL, job.team))
    if request.method == "POST":
        return _change(request, job)
    if target_id(request) == "effect":
        return answer(request, template="jobs/_priority_effect.html", context=_effect(job, PriorityForm(request.GET)))
    return _page(request, job, PriorityForm({"priority": what_if.priority_to_be_first(job)}))


def _change(request: HtmxRequest, job: Job) -> HttpResponse:
    form = PriorityForm(request.POST)
    if not form.is_valid():
        return _page(request, job, form, status=422)
    try:
        row = services.set_priority(job=job, by=request.user, priority=form.cleaned_data["priority"])
    except Conflict as error:
        messages.error(request, str(error))
        return redirect("job", pk=job.pk)
    except InvalidInput as error:
        form.take(error)
        return _page(request, job, form, status=422)
    messages.success(request, f"{row.name} has priority {row.priority}.")
    return redirect(_back(request, job))


def _page(request: HtmxRequest, job: Job, form: PriorityForm, *, status: int = 200) -> HttpResponse:
    if job.is_finished:
        raise PermissionDenied(f"Job {job.name} has ended, and its priority with it.")
    context = {
        "job": job,
        "form": form,
        "back": _came_from(request),
        "back_url": _back(request, job),
        **_effect(job, form),
    }
    return answer(request, template="jobs/priority.html", context=context, status=status)


def _effect(job: Job, form: PriorityForm) -> Context:
    """Return what the entered priority would do; nothing for one that would be refused."""
    if job.is_finished or not form.is_valid() or priority_problems(job.queue, form.cleaned_data["priority"]):
        return {"effect": None}
    return {"effect": what_if.of_priority(job, form.cleaned_data["priority"])}


def _came_from(request: HtmxRequest) -> str:
    return "queue" if "queue" in (request.GET.get("back"), request.POST.get("back")) else "job"


def _back(request: HtmxRequest, job: Job) -> str:
    return reverse("queue-edit", args=[job.queue.name]) if _came_from(request) == "queue" else job.get_absolute_url()
