"""/account: who one is, one's teams, one's password."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpResponse
from django.urls import reverse_lazy
from django.views.decorators.http import require_safe

from accounts import audit
from accounts.audit import Deed

from .parts import Request, answer


@login_required
@require_safe
def account(request: Request) -> HttpResponse:
    memberships = list(request.user.memberships.select_related("team").order_by("team__name"))
    valid = request.user.tokens.valid().count()
    return answer(request, template="accounts/account.html", context={"memberships": memberships, "tokens": valid})


class ChangePassword(PasswordChangeView):
    """Asks for the present one; every other session of this person ends with it."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("account")
    http_method_names = ["get", "head", "post"]

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        messages.success(self.request, "Your password is changed, and you are signed out everywhere else.")
        with transaction.atomic():
            audit.record(Deed.PASSWORD_CHANGED, by=form.user, on=form.user)
            return super().form_valid(form)
