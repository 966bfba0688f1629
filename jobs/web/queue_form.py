"""One queue, and forms for queues: /queues/NAME shows who waits in which order, /make-queue adds a queue.

All members of a queue's team may look; its administrators change it there. Platform administrators add queues.
"""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import allowed
from accounts.permissions import Act, is_platform_admin, may, require
from common.errors import Conflict, InvalidInput, NotAllowed, Problem
from common.http.forms import ServiceForm
from jobs.models import Job, in_order
from jobs.scheduling import waiting
from jobs.scheduling.quota_use import QuotaUse, use_of
from jobs.scheduling.usage import consequences, over_quota_warning, with_use
from queues import clusters, rules, services
from queues.admission import Policy
from queues.models import Resource, TeamQuota
from queues.readable import readable_queues

from .responses import Context, HtmxRequest, answer, target_id, whole

SHOWN = 200  # waiting jobs, and running ones
POLICIES = [
    (Policy.STRICT.value, "Strict: nobody passes the first one"),
    (Policy.BACKFILL.value, "Backfill: a job that ends in time may pass"),
    (Policy.BEST_EFFORT.value, "Best effort: any job that fits may pass"),
]


class QueueForm(ServiceForm):
    """Checks no rule of its own: `services.change` does, and its problems are shown at their fields."""

    slots = forms.IntegerField()
    gpus_per_node = forms.IntegerField()
    description = forms.CharField(required=False, max_length=200)
    is_open = forms.BooleanField(required=False)
    policy = forms.ChoiceField(choices=POLICIES, required=False)  # without one it stays as it is
    drains = forms.BooleanField(required=False)
    preempts = forms.BooleanField(required=False)
    borrowing_limit = forms.IntegerField(required=False)
    reason = forms.CharField(required=False, max_length=200)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for rule in rules.RULES:
            self.fields[rule.name] = forms.IntegerField(required=False, label=rule.label, help_text=rule.words)

    @property
    def limits(self) -> list[forms.BoundField]:
        return [self[name] for name in rules.NAMES]

    @property
    def has_limits(self) -> bool:
        return any(one.value() not in (None, "") or one.errors for one in self.limits)


class NewQueueForm(QueueForm):
    """The same for `services.make`."""

    name = forms.CharField(max_length=40)
    team = forms.ChoiceField()
    cluster = forms.ChoiceField()
    resource = forms.ChoiceField(choices=Resource.choices)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        teams = Team.objects.order_by("name").values_list("name", flat=True)
        for field, values in (("team", teams), ("cluster", clusters.names())):
            self.fields[field].choices = [(value, value) for value in values]  # type: ignore[attr-defined]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def make(request: HtmxRequest) -> HttpResponse:
    if not is_platform_admin(request.user):
        raise PermissionDenied("Only platform administrators can create queues; ask one of them.")
    if request.method != "POST":
        asked = {"slots": 8, "gpus_per_node": 0, "is_open": True, "team": request.GET.get("team", "")}
        asked["policy"] = Policy.BACKFILL.value
        return _new_page(request, NewQueueForm(initial=asked))
    form = NewQueueForm(request.POST)
    if not form.is_valid() or not _made(request, form):
        return _new_page(request, form, status=422)
    return redirect("queues")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HtmxRequest, name: str) -> HttpResponse:
    """Show a queue, and change it. What a change would do to jobs is shown before it is saved."""
    queue = get_object_or_404(with_use(readable_queues(request.user)), name=name)
    if target_id(request) == "consequence":
        return answer(request, template="queues/_consequence.html", context=_would_do(queue, QueueForm(request.GET)))
    if request.method != "POST":
        is_admin = may(request.user, Act.MANAGE, queue.team)
        return _page(request, queue, QueueForm(initial=services.described(queue)) if is_admin else None)
    allowed(lambda: require(request.user, Act.MANAGE, queue.team))
    if request.POST.get("act") == "ceiling":
        return _set_ceiling(request, queue)
    form = QueueForm(request.POST)
    would_do = _would_do(queue, form)
    if would_do["consequences"] and request.POST.get("seen") != would_do["seen"]:
        return _page(request, queue, form, would_do=would_do)
    if not form.is_valid() or not _change(request, queue, form):
        return _page(request, queue, form, status=422)
    return redirect("queues")


def _set_ceiling(request: HtmxRequest, queue: Any) -> HttpResponse:
    """Set the ceiling of the queue's team; an empty field is no ceiling."""
    entered, reason = request.POST.get("ceiling", "").strip(), request.POST.get("reason", "").strip()
    slots = None if not entered else whole(entered, most=services.MOST_SLOTS)
    try:
        if entered and slots is None:
            raise InvalidInput(
                Problem("ceiling", entered, f"must be a whole number up to {services.MOST_SLOTS:,}, or empty")
            )
        services.set_ceiling(team=queue.team, resource=queue.resource, slots=slots, by=request.user, reason=reason)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except InvalidInput as error:
        messages.error(request, " ".join(f"The {one.field} {one.message}." for one in error.problems))
    else:
        of = f"all queues of team {queue.team.name}"
        ceiling = "no ceiling" if slots is None else f"a ceiling of {slots:,} {queue.get_resource_display()}"
        messages.success(request, f"{of.capitalize()} together have {ceiling}.")
    return redirect("queue-edit", name=queue.name)


def _would_do(queue: Any, form: QueueForm) -> Context:
    """Return what these values would do, and a word by which a form says that this was shown."""
    if not form.is_valid() or services.problems_in({"slots": form.cleaned_data["slots"]}):
        return {"consequences": []}
    slots, is_open, drains = (form.cleaned_data[name] for name in ("slots", "is_open", "drains"))
    found = consequences(queue, slots=slots, is_open=is_open, drains=drains)
    return {"consequences": found, "seen": f"{slots} {is_open}{' drains' if drains else ''}"}


def _change(request: HtmxRequest, queue: Any, form: QueueForm) -> bool:
    try:
        values = _given(form)
        for name in ("borrowing_limit", *rules.NAMES):
            if name not in request.POST:
                del values[name]  # the page had no field for it
        row = services.change(queue=queue, by=request.user, **values)
    except InvalidInput as error:
        form.take(error)
        return False
    if words := over_quota_warning(row, used=queue.used):
        messages.warning(request, f"Queue {row.name} was changed: {words}.")
    else:
        messages.success(request, f"Queue {row.name} was changed.")
    return True


def _given(form: QueueForm) -> dict[str, Any]:
    """Return the values of the form's fields; one that is open does not drain, whatever else is ticked."""
    found = {name: value for name, value in form.cleaned_data.items() if name != "policy" or value}
    return {**found, "drains": found["drains"] and not found["is_open"]}


def _made(request: HtmxRequest, form: NewQueueForm) -> bool:
    try:
        asked = {name: value for name, value in _given(form).items() if name not in ("reason", "borrowing_limit")}
        row = services.make(by=request.user, **asked)
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


def _quota(queue: Any) -> QuotaUse | None:
    """Return what the queue's team has of its flavor, and uses, borrows and lends of it."""
    rows = TeamQuota.objects.filter(team=queue.team_id, flavor=queue.flavor_id).select_related(
        "team", "flavor", "cohort"
    )
    return next(iter(use_of(rows)), None) if queue.flavor_id else None


def _new_page(request: HtmxRequest, form: NewQueueForm, status: int = 200) -> HttpResponse:
    return answer(request, template="queues/new.html", context={"form": form}, status=status)


def _page(
    request: HtmxRequest, queue: Any, form: QueueForm | None, *, would_do: Context | None = None, status: int = 200
) -> HttpResponse:  # fmt: skip
    """Return the page of a queue; without a form for those who may not change it."""
    rows = list(in_order(Job.objects.waiting().filter(queue=queue)).select_related("user")[:SHOWN])
    why = waiting.of_queue(queue) if rows else {}
    holders = Job.objects.holding_quota().filter(queue=queue).select_related("user").order_by("-slots", "id")
    context = {
        "queue": queue,
        "form": form,
        "quota": _quota(queue),
        "may_submit": may(request.user, Act.SUBMIT, queue.team),
        "waiting": [(job, why.get(job.pk)) for job in rows],
        "waiting_count": Job.objects.waiting().filter(queue=queue).count(),
        "holders": list(holders[:SHOWN]),
        "holding_count": holders.count(),
        "ceiling": services.ceilings_of(queue.team).get(queue.resource) if form else None,
        "may_set_ceiling": is_platform_admin(request.user),
        "in_others": services.quota_of(queue.team, queue.resource) - queue.nominal if form else 0,
        **(would_do or {}),
    }
    return answer(request, template="queues/edit.html", context=context, status=status)
