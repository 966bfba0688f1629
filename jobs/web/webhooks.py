"""/teams/NAME/webhooks, and one webhook: its deliveries, and what administrators may do with it."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from accounts.models import Team
from accounts.pages.parts import allowed
from accounts.permissions import Act, may, require
from common.errors import Conflict, InvalidInput
from common.http.forms import ServiceForm
from jobs.models import Delivery, Webhook
from jobs.webhooks import services
from jobs.webhooks.events import Choice

from .responses import Context, HtmxRequest, answer, whole

SHOWN = 50
COLUMNS = (
    "event", "attempt", "created_at", "tries", "next_try_at", "delivered_at", "gave_up_at", "status_code", "error",
    "job__name", "webhook_id",
)  # fmt: skip
EVENTS = [
    (Choice.START.value, "Start: all of its replicas run"),
    (Choice.FAILURE.value, "Failure: also of an attempt that is tried again"),
    (Choice.END.value, "End: succeeded, failed or cancelled"),
]
EXAMPLE = "https://hooks.slack.com/services/…"
RANGES = [("every", "Every job of the team"), ("named", "Only jobs that name it")]


class WebhookForm(ServiceForm):
    """Checks no rule of its own: services do, and their problems are shown at their fields. An empty URL stays."""

    url = forms.CharField(required=False, max_length=4000)
    format = forms.CharField(required=False, initial=Webhook.Format.JSON)
    events = forms.MultipleChoiceField(choices=EVENTS, required=False, initial=["failure", "end"])
    range = forms.ChoiceField(choices=RANGES, required=False, initial="every")

    def sent(self) -> dict[str, Any]:
        data = self.cleaned_data
        sent = {"format": data["format"], "events": data["events"], "all_jobs": data["range"] != "named"}
        return {**sent, **({"url": data["url"]} if data["url"] else {})}


class NewWebhookForm(WebhookForm):
    name = forms.CharField(required=False, max_length=200)

    def sent(self) -> dict[str, Any]:
        return {**super().sent(), "name": self.cleaned_data["name"], "url": self.cleaned_data["url"]}


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HtmxRequest, team: str) -> HttpResponse:
    """List a team's webhooks, and make one. Its secret is in the answer to that, and in no other."""
    found, _ = services.of_team(request.user, team)
    if request.method != "POST":
        return _list(request, found, NewWebhookForm())
    allowed(lambda: require(request.user, Act.MANAGE, found))
    form = NewWebhookForm(request.POST)
    if form.is_valid():
        try:
            made, secret = services.create(team=found, by=request.user, **form.sent())
            return _list(request, found, NewWebhookForm(), made=made, secret=secret)
        except InvalidInput as error:
            form.take(error)
        except Conflict as error:
            form.add_error("name", str(error))
    return _list(request, found, form, status=422)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def webhook(request: HtmxRequest, team: str, name: str) -> HttpResponse:
    """Show one webhook with its history; the posted `act` says what to do with it."""
    found = services.one_of(request.user, team, name)
    if request.method != "POST":
        return _page(request, found, _form_of(found))
    allowed(lambda: require(request.user, Act.MANAGE, found.team))
    act = request.POST.get("act", "")
    if act == "change":
        return _change(request, found)
    try:
        if act == "rotate":
            row, secret = services.rotate(webhook=found, by=request.user)
            return _page(request, row, _form_of(row), secret=secret)
        message = _act(request, found, act)
    except Conflict as error:
        messages.error(request, f"{error}.")
    else:
        messages.success(request, message)
    if act == "remove":
        return redirect("team-webhooks", team=team)
    return redirect("team-webhook", team=team, name=name)


def _act(request: HtmxRequest, found: Webhook, act: str) -> str:
    """Do what was posted and return what to say. Raises Conflict."""
    match act:
        case "test":
            services.ping(webhook=found, by=request.user)
            return "A test is on its way; reload this page to see what became of it."
        case "again":
            pk = whole(request.POST.get("delivery"), most=2**62) or 0
            row = found.deliveries.select_related("webhook__team").filter(pk=pk).first()
            if row is None:
                raise Http404("this delivery was deleted meanwhile")
            services.send_again(delivery=row, by=request.user)
            return "It is sent again; reload this page to see what became of it."
        case "on" | "off":
            services.change(webhook=found, by=request.user, is_active=act == "on")
            return f"Webhook {found.name} was switched {act}."
        case "remove":
            services.remove(webhook=found, by=request.user)
            return f"Webhook {found.name} and its history were removed."
    raise Http404("there is no such action")


def _change(request: HtmxRequest, row: Webhook) -> HttpResponse:
    form = WebhookForm(request.POST)
    if form.is_valid():
        try:
            services.change(webhook=row, by=request.user, **form.sent())
            messages.success(request, f"Webhook {row.name} was changed.")
            return redirect("team-webhook", team=row.team.name, name=row.name)
        except InvalidInput as error:
            form.take(error)
    return _page(request, row, form, status=422)


def _form_of(row: Webhook) -> WebhookForm:
    values = {"format": row.format, "events": row.events, "range": "every" if row.all_jobs else "named"}
    return WebhookForm(initial=values)


def _list(request: HtmxRequest, team: Team, form: WebhookForm, *, status: int = 200, **made: Any) -> HttpResponse:
    context = {
        "team": team,
        "rows": Webhook.objects.filter(team=team),
        "form": form,
        "may_manage": may(request.user, Act.MANAGE, team),
        **_choices(),
        **made,
    }
    return answer(request, template="webhooks/list.html", context=context, status=status)


def _page(
    request: HtmxRequest, row: Webhook, form: WebhookForm, *, status: int = 200, secret: str = ""
) -> HttpResponse:
    before = whole(request.GET.get("before"), most=2**62)
    deliveries = Delivery.objects.filter(webhook=row).select_related("job").only(*COLUMNS).order_by("-id")
    rows = list((deliveries if before is None else deliveries.filter(pk__lt=before))[: SHOWN + 1])
    context = {
        "webhook": row,
        "team": row.team,
        "rows": rows[:SHOWN],
        "older": rows[SHOWN - 1].pk if len(rows) > SHOWN else None,
        "is_first": before is None,
        "form": form,
        "secret": secret,
        "may_manage": may(request.user, Act.MANAGE, row.team),
        **_choices(),
    }
    return answer(request, template="webhooks/detail.html", context=context, status=status)


def _choices() -> Context:
    return {"formats": Webhook.Format.choices, "choices": EVENTS, "ranges": RANGES, "example": EXAMPLE}
