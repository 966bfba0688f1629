"""/account: the user's name, teams and password."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import ValidationError
from django.forms import BooleanField
from django.http import HttpResponse
from django.urls import reverse_lazy
from django.views.decorators.http import require_safe

from accounts import audit, tokens
from accounts.audit import AuditAction
from accounts.models import Token
from accounts.signin import second_factor

from .parts import UserRequest, answer


@login_required
@require_safe
def account(request: UserRequest) -> HttpResponse:
    memberships = list(request.user.memberships.select_related("team").order_by("team__name"))
    valid = request.user.tokens.valid().count()
    context = {"memberships": memberships, "tokens": valid, "has_factor": second_factor.is_asked(request.user)}
    return answer(request, template="accounts/account.html", context=context)


class OwnPassword(PasswordChangeForm):
    end_tokens = BooleanField(required=False)

    def clean_new_password1(self) -> str:
        """Refuse the current password: the person who handed it out would still know it."""
        new = str(self.cleaned_data["new_password1"])
        if self.user.check_password(new):
            raise ValidationError("This is your current password. Choose a different one.", code="same")
        return new


class ChangePassword(PasswordChangeView):
    """Change the password, given the current one; ends the user's other sessions, and on request their tokens."""

    template_name = "accounts/password.html"
    form_class = OwnPassword
    success_url = reverse_lazy("account")
    http_method_names = ["get", "head", "post"]

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        with audit.change():
            audit.record(AuditAction.PASSWORD_CHANGED, by=form.user, on=form.user)
            ended = tokens.revoke_all(form.user, by=form.user) if form.cleaned_data["end_tokens"] else 0
            form.user.first_password_until = None
            answer = super().form_valid(form)
        also = (
            f" {ended} token{'' if ended == 1 else 's'} of yours {'is' if ended == 1 else 'are'} revoked."
            if ended
            else ""
        )
        messages.success(self.request, f"Your password was changed, and you were signed out everywhere else.{also}")
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        count = Token.objects.valid().filter(user=self.request.user.pk).count()
        return super().get_context_data(token_count=count, **kwargs)
