"""/account/tokens: make a token, see it once, revoke it."""

from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods, require_POST

from accounts import members, tokens
from accounts.models import TOKEN_DAYS, Scope, Token, User
from accounts.permissions import Act, teams_where
from common.errors import InvalidInput, NotAllowed
from common.http.forms import ServiceForm

from .parts import UserRequest, answer, attempt

SHOWN = 100
DAYS = [(7, "a week"), (30, "a month"), (TOKEN_DAYS, "three months"), (tokens.MOST_DAYS, "a year")]


class TokenForm(ServiceForm):
    """Check no rules itself: `tokens.issue` does, and its problems are shown at their fields."""

    name = forms.CharField(max_length=80)
    scope = forms.ChoiceField(choices=Scope.choices, initial=Scope.SUBMIT, widget=forms.RadioSelect)
    service_account = forms.ChoiceField(required=False)
    team = forms.ChoiceField(required=False)
    expires_in_days = forms.TypedChoiceField(choices=DAYS, coerce=int, initial=TOKEN_DAYS)

    def __init__(self, *args: Any, user: User, **kwargs: Any):
        super().__init__(*args, **kwargs)
        names = [team.name for team in members.teams_of(user).order_by("name")]
        self._choose("team", [("", "Every team"), *((name, name) for name in names)])
        self._choose("service_account", [("", user.get_username()), *((name, name) for name in programs(user))])

    def _choose(self, name: str, choices: list[tuple[str, str]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def issue(self, by: User) -> tuple[Token, str]:
        sent = self.cleaned_data
        return tokens.issue(
            by=by,
            name=sent["name"],
            scope=sent["scope"],
            days=sent["expires_in_days"],
            team=sent["team"] or None,
            service_account=sent["service_account"] or None,
        )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: UserRequest) -> HttpResponse:
    if request.method != "POST":
        asked = {"service_account": request.GET.get("for", "")}
        return _page(request, TokenForm(initial=asked, user=request.user))
    form = TokenForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, status=422)
    try:
        token, text = form.issue(request.user)
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except InvalidInput as error:
        form.take(error)
        return _page(request, form, status=422)
    return _page(request, TokenForm(user=request.user), made=token, text=text)


@login_required
@require_POST
def revoke(request: UserRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(tokens.visible(request.user), pk=pk)
    attempt(request, lambda: tokens.revoke(token=token, by=request.user), done=f"Token {token.name} was revoked.")
    return redirect("account-tokens")


def programs(user: User) -> list[str]:
    """Return the names of the service accounts that `user` may make tokens for."""
    teams = teams_where(user, Act.MANAGE)
    found = User.objects.filter(service_team__isnull=False, is_active=True).order_by("username")
    found = found if teams is None else found.filter(service_team__in=teams)
    return list(found.values_list("username", flat=True))


def _page(
    request: UserRequest, form: TokenForm, *, made: Token | None = None, text: str = "", status: int = 200
) -> HttpResponse:
    rows = tokens.visible(request.user).order_by("revoked_at", "-id")[:SHOWN]
    ordered = sorted(rows, key=lambda token: not token.is_valid)
    context = {"form": form, "rows": ordered, "made": made, "text": text}
    return answer(request, template="accounts/tokens.html", context=context, status=status)
