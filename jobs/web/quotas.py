"""/teams/NAME/quota: what a team has of each flavor, uses, borrows and lends. Platform administrators change it there.

What a change would do is shown before it is saved, by the scheduler's own decisions; a change can be undone.
"""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from accounts import members
from accounts.models import Team
from accounts.pages.parts import allowed
from accounts.permissions import Act, is_platform_admin, may, require_platform_admin
from common.errors import Conflict, InvalidInput
from common.http.forms import ServiceForm
from jobs.scheduling import what_if
from jobs.scheduling.quota_use import QuotaUse, use_of
from queues import cohorts
from queues.models import Cohort, Flavor, Queue, TeamQuota

from .responses import HtmxRequest, answer, target_id


class QuotaForm(ServiceForm):
    """Checks no rule of its own: `cohorts.set_quota` does, and its problems are shown at their fields."""

    flavor = forms.CharField(max_length=40)
    nominal = forms.IntegerField()
    borrowing_limit = forms.IntegerField(required=False)
    lending_limit = forms.IntegerField(required=False)
    weight = forms.FloatField(required=False)
    cohort = forms.CharField(required=False, max_length=40)
    reason = forms.CharField(required=False, max_length=200)
    version = forms.IntegerField(required=False)

    @property
    def values(self) -> dict[str, Any]:
        found = {name: self.cleaned_data[name] for name in cohorts.FIELDS}
        return {
            **found,
            "cohort": found["cohort"] or None,
            "weight": 1.0 if found["weight"] is None else found["weight"],
        }


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HtmxRequest, team: str) -> HttpResponse:
    found = members.readable_team(request.user, team)
    if request.method != "POST":
        if target_id(request).startswith("consequence"):
            return _consequence(request, found)
        return _page(request, found)
    allowed(lambda: require_platform_admin(request.user, "set the quotas of teams"))
    form = QuotaForm(request.POST)
    if not form.is_valid():
        return _page(request, found, form, status=422)
    flavor = form.cleaned_data["flavor"]
    would_do = _would_do(found, form)
    if would_do and request.POST.get("seen") != _seen(form):
        return _page(request, found, form, would_do=would_do)
    before = TeamQuota.objects.filter(team=found, flavor__name=flavor).select_related("cohort", "flavor").first()
    try:
        row = cohorts.set_quota(
            by=request.user, team=found, flavor=flavor, reason=form.cleaned_data["reason"],
            version=form.cleaned_data["version"], **form.values,
        )  # fmt: skip
    except Conflict as error:
        form.add_error(None, str(error))
        return _page(request, found, form, status=409)
    except InvalidInput as error:
        form.take(error)
        return _page(request, found, form, status=422)
    messages.success(request, f"The quota of {flavor} was changed.")
    if before is None or before.version == row.version:  # nothing to go back to
        return redirect("team-quota", team=found.name)
    request.session[_kept(found, flavor)] = {**cohorts.described(before), "version": row.version}
    return redirect(f"{reverse('team-quota', args=[found.name])}?undo={flavor}")


def _page(
    request: HtmxRequest,
    team: Team,
    form: QuotaForm | None = None,
    *,
    would_do: list[str] | None = None,
    status: int = 200,
) -> HttpResponse:
    rows = list(TeamQuota.objects.filter(team=team).select_related("team", "flavor", "cohort"))
    uses, has_rights = use_of(rows), is_platform_admin(request.user)
    known = {one.flavor_id for one in rows}
    queues = list(Queue.objects.filter(team=team, flavor__in=known).order_by("name"))
    context = {
        "team": team,
        "rows": [_row(one, form, queues, most=_scale(one)) for one in uses],
        "stray": _stray(form, rows),
        "would_do": would_do or [],
        "seen": _seen(form) if would_do and form is not None else "",
        "may_set": has_rights,
        "may_ask": may(request.user, Act.SUBMIT, team),
        "others": list(Flavor.objects.exclude(pk__in=known)) if has_rights else [],
        "cohorts": list(Cohort.objects.all()) if has_rights else [],
        "blank": form
        if form is not None and form.data.get("flavor") not in {one.flavor.name for one in rows}
        else QuotaForm(initial={"weight": 1.0}),
        "undo": _undo(request, team) if has_rights else None,
    }
    return answer(request, template="jobs/quotas.html", context=context, status=status)


def _stray(form: QuotaForm | None, rows: list[TeamQuota]) -> list[str]:
    """Return the errors of a form whose flavor has no section on the page."""
    if form is None or not form.errors or form.data.get("flavor") in {one.flavor.name for one in rows}:
        return []
    return [f"{form.data.get('flavor', '')} {words}" for found in form.errors.values() for words in found]


def _row(one: QuotaUse, form: QuotaForm | None, queues: list[Queue], *, most: int) -> dict[str, Any]:
    """Return what is shown of one flavor: its use on a scale from 0 to `most`, and its fields as they are or were entered."""
    quota = one.quota
    is_entered = form is not None and form.data.get("flavor") == quota.flavor.name
    initial = {"flavor": quota.flavor.name, **cohorts.described(quota), "version": quota.version}
    own = min(one.used, quota.nominal)
    return {
        "use": one,
        "form": form if is_entered else QuotaForm(initial=initial),
        "is_entered": is_entered,
        "own": 100 * own / most,
        "borrowed": 100 * one.borrowed / most,
        "lent": 100 * one.lent / most,
        "lent_from": 100 * max(0, quota.nominal - one.lent) / most,
        "mark": 100 * quota.nominal / most,
        "queues": [queue for queue in queues if queue.flavor_id == quota.flavor_id],
    }


def _scale(one: QuotaUse) -> int:
    return max(1, one.quota.nominal, one.used)


def _consequence(request: HtmxRequest, team: Team) -> HttpResponse:
    form = QuotaForm(request.GET)
    would_do = _would_do(team, form) if is_platform_admin(request.user) and form.is_valid() else []
    context = {"would_do": would_do, "seen": _seen(form) if would_do else ""}
    return answer(request, template="jobs/_quota_consequence.html", context=context)


def _would_do(team: Team, form: QuotaForm) -> list[str]:
    """Return what these values would do; nothing for values that would be refused."""
    values = form.values
    flavor = Flavor.objects.filter(name=form.cleaned_data["flavor"]).first()
    cohort = Cohort.objects.filter(name=values["cohort"]).first() if values["cohort"] else None
    if flavor is None or cohorts.quota_problems(values) or (values["cohort"] and cohort is None):
        return []
    before = TeamQuota.objects.filter(team=team, flavor=flavor).select_related("team", "flavor", "cohort").first()
    after = TeamQuota(team=team, flavor=flavor, **{**values, "cohort": cohort})
    return what_if.of_quota(after, before)


def _seen(form: QuotaForm) -> str:
    """Return a word by which the form says that its consequences were shown."""
    return " ".join(str(value) for value in form.values.values()) if form.is_valid() else ""


def _undo(request: HtmxRequest, team: Team) -> dict[str, Any] | None:
    """Return the values before the last change, as a form sends them."""
    flavor = request.GET.get("undo", "")
    kept = request.session.get(_kept(team, flavor)) if flavor else None
    return {"flavor": flavor, **kept} if kept else None


def _kept(team: Team, flavor: str) -> str:
    return f"quota before {team.pk} {flavor}"
