"""/queues/NAME: change a queue's quota; for administrators of its team."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from accounts.permissions import Act, require
from controlplane.errors import InvalidInput, NotAllowed
from jobs.quota import notice, with_use
from queues import services
from queues.readable import readable_queues

from .parts import Request, answer


class QueueForm(forms.Form):
    """Checks no rule of its own: `services.change` does, and its complaints are put at their fields."""

    slots = forms.IntegerField()
    gpus_per_node = forms.IntegerField()
    description = forms.CharField(required=False, max_length=200)
    is_open = forms.BooleanField(required=False)

    def take(self, error: InvalidInput) -> None:
        for problem in error.problems:
            self.add_error(problem.field if problem.field in self.fields else None, problem.message)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: Request, name: str) -> HttpResponse:
    queue = get_object_or_404(with_use(readable_queues(request.user)), name=name)
    try:
        require(request.user, Act.MANAGE, queue.team)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    if request.method != "POST":
        return _page(request, queue, QueueForm(initial=services.described(queue)))
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
    if words := notice(row, used=queue.used):
        messages.warning(request, f"Queue {row.name} is changed: {words}.")
    else:
        messages.success(request, f"Queue {row.name} is changed.")
    return True


def _page(request: Request, queue: Any, form: QueueForm, status: int = 200) -> HttpResponse:
    return answer(request, template="queues/edit.html", context={"queue": queue, "form": form}, status=status)
