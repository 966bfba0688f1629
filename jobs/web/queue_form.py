"""One queue, and forms for queues: /queues/NAME shows who waits in which order, /make-queue adds a queue.

All members of a queue's team may look; its administrators change it there. Platform administrators add queues.
"""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.permissions import Act, is_platform_admin, may, require
from common.errors import Conflict, InvalidInput, NotAllowed
from jobs.analysis.usage import over_quota_warning, with_use
from jobs.models import Job, in_order
from queues import services
from queues.models import Resource
from queues.readable import readable_queues

from .parts import Request, answer

SHOWN = 200  # waiting jobs, and running ones


class QueueForm(forms.Form):
    """Checks no rule of its own: `services.change` does, and its problems are shown at their fields."""

    slots = forms.IntegerField()
    gpus_per_node = forms.IntegerField()
    description = forms.CharField(required=False, max_length=200)
    is_open = forms.BooleanField(required=False)

    def take(self, error: InvalidInput) -> None:
        for problem in error.problems:
            self.add_error(problem.field if problem.field in self.fields else None, problem.message)


class NewQueueForm(QueueForm):
    """The same for `services.make`."""

    name = forms.CharField(max_length=40)
    team = forms.ChoiceField()
    cluster = forms.ChoiceField()
    resource = forms.ChoiceField(choices=Resource.choices)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        teams = Team.objects.order_by("name").values_list("name", flat=True)
        for field, values in (("team", teams), ("cluster", settings.CLUSTERS)):
            self.fields[field].choices = [(value, value) for value in values]  # type: ignore[attr-defined]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def make(request: Request) -> HttpResponse:
    if not is_platform_admin(request.user):
        raise PermissionDenied("Only platform administrators can create queues; ask one of them.")
    if request.method != "POST":
        asked = {"slots": 8, "gpus_per_node": 0, "is_open": True, "team": request.GET.get("team", "")}
        return _new_page(request, NewQueueForm(initial=asked))
    form = NewQueueForm(request.POST)
    if not form.is_valid() or not _made(request, form):
        return _new_page(request, form, status=422)
    return redirect("queues")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: Request, name: str) -> HttpResponse:
    queue = get_object_or_404(with_use(readable_queues(request.user)), name=name)
    if request.method != "POST":
        is_admin = may(request.user, Act.MANAGE, queue.team)
        return _page(request, queue, QueueForm(initial=services.described(queue)) if is_admin else None)
    try:
        require(request.user, Act.MANAGE, queue.team)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    form = QueueForm(request.POST)
    if not form.is_valid() or not _change(request, queue, form):
        return _page(request, queue, form, status=422)
    return redirect("queues")


def _change(request: Request, queue: Any, form: QueueForm) -> bool:
    try:
        row = services.change(queue=queue, by=request.user, **form.cleaned_data)
    except InvalidInput as error:
        form.take(error)
        return False
    if words := over_quota_warning(row, used=queue.used):
        messages.warning(request, f"Queue {row.name} was changed: {words}.")
    else:
        messages.success(request, f"Queue {row.name} was changed.")
    return True


def _made(request: Request, form: NewQueueForm) -> bool:
    try:
        row = services.make(by=request.user, **form.cleaned_data)
    except InvalidInput as error:
        form.take(error)
    except Conflict as error:
        form.add_error("name", str(error))
    else:
        if words := over_quota_warning(row, used=0):
            messages.warning(request, f"Queue {row.name} was created; {words}.")
        else:
            messages.success(request, f"Queue {row.name} was created.")
        return True
    return False


def _new_page(request: Request, form: NewQueueForm, status: int = 200) -> HttpResponse:
    return answer(request, template="queues/new.html", context={"form": form}, status=status)


def _page(request: Request, queue: Any, form: QueueForm | None, status: int = 200) -> HttpResponse:
    """Return the page of a queue; without a form for those who may not change it."""
    waiting = in_order(Job.objects.waiting().filter(queue=queue)).select_related("user")
    holders = Job.objects.holding_quota().filter(queue=queue).select_related("user").order_by("-slots", "id")
    context = {
        "queue": queue,
        "form": form,
        "waiting": list(waiting[:SHOWN]),
        "waiting_count": waiting.count(),
        "holders": list(holders[:SHOWN]),
        "holding_count": holders.count(),
    }
    return answer(request, template="queues/edit.html", context=context, status=status)
