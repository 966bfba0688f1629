"""/quota-requests: requests for more quota, of one's teams and to decide, and the form of a new one."""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts import members
from accounts.permissions import Act, may
from common.errors import Conflict, InvalidInput, NotAllowed, Problem
from common.http.forms import ServiceForm
from jobs.scheduling import what_if
from jobs.scheduling.usage import consequences, with_use
from queues import cohorts, requests
from queues.models import Flavor, Queue, QuotaRequest, TeamQuota
from queues.readable import readable_queues

from .responses import Context, HtmxRequest, answer, whole

SHOWN = 50  # of each kind
EXPLAINED = 10  # of those to decide with what granting them would do, which is found by playing admission through


class AskForm(ServiceForm):
    """Of a queue, or of a flavor of a team. Checks no rule of its own: `requests.ask` does."""

    queue = forms.CharField(required=False, max_length=40)
    team = forms.CharField(required=False, max_length=60)
    flavor = forms.CharField(required=False, max_length=40)
    slots = forms.IntegerField()
    why = forms.CharField(max_length=requests.MOST_WORDS)


@dataclass(frozen=True)
class Shown:
    """A request, with what one may do with it. `effects`: what granting it would do; `error`: why that was refused just now."""

    request: QuotaRequest
    may_decide: bool
    may_withdraw: bool
    effects: list[str]
    error: str = ""

    @property
    def words(self) -> str:
        return requests.described(self.request)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HtmxRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, _form(request))
    match request.POST.get("act"):
        case "ask":
            return _ask(request)
        case "grant" | "decline" | "withdraw" as verb:
            return _decide(request, verb)
        case _:
            raise BadRequest("act must be ask, grant, decline or withdraw")


def _ask(request: HtmxRequest) -> HttpResponse:
    form = AskForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    values = {name: form.cleaned_data[name] for name in ("slots", "why")}
    try:
        row = requests.ask(by=request.user, **_subject(request, form.cleaned_data), **values)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except Conflict as error:
        form.add_error(None, str(error))
        return _page(request, form, status=409)
    except InvalidInput as error:
        form.take(error)
        return _page(request, form, status=422)
    who = "administrators of the platform" if row.queue_id is None else f"administrators of team {row.team.name}"
    messages.success(request, f"Asked for {requests.described(row)}: {who} decide.")
    return redirect("quota-requests")


def _decide(request: HtmxRequest, verb: str) -> HttpResponse:
    row = requests.readable(request.user).filter(pk=whole(request.POST.get("request")) or 0).first()
    if row is None:
        raise Http404
    words = request.POST.get("answer", "")
    try:
        if verb == "grant":
            if (slots := whole(request.POST.get("slots"))) is None:
                raise InvalidInput(Problem("slots", request.POST.get("slots"), "must be a whole number"))
            done = requests.grant(request=row, by=request.user, slots=slots, answer=words)
            messages.success(request, f"Granted: {done.granted:,} in all; asked was for {requests.described(done)}.")
        elif verb == "decline":
            requests.decline(request=row, by=request.user, answer=words)
            messages.success(request, "Declined.")
        else:
            requests.withdraw(request=row, by=request.user)
            messages.success(request, "Withdrawn.")
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except (Conflict, InvalidInput) as error:
        problems = error.problems if isinstance(error, InvalidInput) else ()
        said = " ".join(f"{one.field} {one.message}." for one in problems) or str(error)
        status = 422 if problems else 409
        return _page(request, None, refused={row.pk: said}, status=status)
    return redirect("quota-requests")


def _page(
    request: HtmxRequest, form: AskForm | None, *, refused: dict[int, str] | None = None, status: int = 200
) -> HttpResponse:
    user, errors = request.user, refused or {}
    mine = list(requests.to_decide(user)[:SHOWN])
    to_decide = [_shown(request, one, errors, with_effects=at < EXPLAINED) for at, one in enumerate(mine)]
    rest = requests.readable(user).exclude(pk__in=[one.pk for one in mine])[:SHOWN]
    others = [_shown(request, one, errors) for one in rest]
    context = {"to_decide": to_decide, "others": others, "form": form, **(_about(request, form) if form else {})}
    return answer(request, template="jobs/quota_requests.html", context=context, status=status)


def _shown(request: HtmxRequest, row: QuotaRequest, errors: dict[int, str], *, with_effects: bool = False) -> Shown:
    is_open, user = row.state == QuotaRequest.State.OPEN, request.user
    decides = is_open and requests.may_decide(user, row)
    withdraws = is_open and (row.asked_by_id == user.pk or may(user, Act.MANAGE, row.team))
    return Shown(row, decides, withdraws, _effects(row) if decides and with_effects else [], errors.get(row.pk, ""))


def _effects(row: QuotaRequest) -> list[str]:
    """Return what granting it as asked would do."""
    if row.queue_id is not None:
        queue: Any = with_use(Queue.objects.select_related("team")).get(pk=row.queue_id)
        return consequences(queue, slots=row.wanted, is_open=queue.is_open)
    before = (
        TeamQuota.objects.filter(team=row.team, flavor=row.flavor).select_related("team", "flavor", "cohort").first()
    )
    kept = {} if before is None else {name: getattr(before, name) for name in cohorts.FIELDS}
    after = TeamQuota(team=row.team, flavor=row.flavor, **{**kept, "nominal": row.wanted})
    return what_if.of_quota(after, before)


def _form(request: HtmxRequest) -> AskForm | None:
    """Return the form for what the address names; None where it names nothing."""
    asked = {name: request.GET.get(name, "") for name in ("queue", "team", "flavor")}
    return AskForm(initial=asked) if any(asked.values()) else None


def _about(request: HtmxRequest, form: AskForm) -> Context:
    """Return what the form asks about, and how much of it there is."""
    asked = {name: form[name].value() or "" for name in ("queue", "team", "flavor")}
    found = _subject(request, asked)
    if (queue := found.get("queue")) is not None:
        return {"asks": f"queue {queue.name}", "has": queue.nominal, "unit": queue.get_resource_display()}
    flavor = Flavor.objects.filter(name=found["flavor"]).first()
    unit = flavor.get_resource_display() if flavor else ""
    words = f"flavor {found['flavor']} for team {found['team'].name}"
    return {"asks": words, "has": requests.in_hand(None, found["team"], flavor), "unit": unit}


def _subject(request: HtmxRequest, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the queue, or the team and flavor, that are named. Raises Http404 where one may not see them."""
    if asked["queue"]:
        queue = readable_queues(request.user).filter(name=asked["queue"]).first()
        if queue is None:
            raise Http404
        return {"queue": queue}
    return {"team": members.readable_team(request.user, asked["team"]), "flavor": asked["flavor"]}
