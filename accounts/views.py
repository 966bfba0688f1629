"""Signing in and out: Django's own views with our templates, written down in the audit."""

from typing import Any

from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.core.exceptions import ValidationError
from django.forms import TextInput
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods

from . import audit, signing_in
from .audit import Deed
from .models import User


class SignInForm(AuthenticationForm):
    # Django tells browsers only how long a name may be; a longer one must not reach the table of failures.
    username = UsernameField(max_length=150, widget=TextInput(attrs={"autofocus": True}))

    def confirm_login_allowed(self, user: User) -> None:
        super().confirm_login_allowed(user)
        if not signing_in.may_use_password(user):
            raise ValidationError(self.get_invalid_login_error())
        if words := signing_in.objection(user):
            raise ValidationError(words)


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class SignIn(views.LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True
    authentication_form = SignInForm

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        assert isinstance(user, User)
        signing_in.note_success(user, way="page")
        return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if name := form.cleaned_data.get("username"):
            signing_in.note_failure(name, way="page")
        return super().form_invalid(form)


class SignOut(views.LogoutView):
    """POST only, so that no link or image can sign somebody out."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if isinstance(request.user, User):
            audit.record(Deed.LOGOUT, by=request.user, on=request.user)
        response = super().post(request, *args, **kwargs)
        response.headers["Clear-Site-Data"] = '"cache"'  # pages that the browser kept
        return response
