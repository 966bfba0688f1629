"""Signing in and out: Django's own views with our templates, recorded in the audit."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import login, views
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.core.exceptions import ValidationError
from django.forms import CharField, Form, TextInput
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods
from django.views.generic import FormView

from common.errors import Conflict

from . import audit
from .audit import AuditAction
from .models import User
from .signin import flow, second_factor


class SignInForm(AuthenticationForm):
    # Django only limits the length of a name in browsers; a longer one must not reach the table of failures.
    username = UsernameField(max_length=150, widget=TextInput(attrs={"autofocus": True}))

    def confirm_login_allowed(self, user: User) -> None:
        super().confirm_login_allowed(user)
        if not flow.may_use_password(user):
            raise ValidationError(self.get_invalid_login_error())
        if words := flow.objection(user):
            raise ValidationError(words)


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class SignIn(views.LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True
    authentication_form = SignInForm

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        assert isinstance(user, User)
        if second_factor.is_asked(user):
            flow.begin_half(self.request, user)
            return redirect(f"{reverse('login-code')}?{urlencode({'next': self.get_success_url()})}")
        flow.note_success(user, way="page")
        return super().form_valid(form)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if name := form.cleaned_data.get("username"):
            flow.note_failure(name, way="page")
        return super().form_invalid(form)


class CodeForm(Form):
    """What the authenticator shows, or a recovery code."""

    code = CharField(max_length=40)

    def __init__(self, *args: Any, user: User, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        try:
            if second_factor.check(self.user, code):
                return code
        except second_factor.TooManyCodes as error:
            raise ValidationError(f"{error}.", code="paused") from error
        except Conflict as error:
            raise ValidationError(f"{error}.", code="unreadable") from error
        flow.note_wrong_code(self.user, way="page")
        raise ValidationError("This code is wrong or already used. Wait for the next one.", code="wrong")


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class SignInCode(views.RedirectURLMixin, FormView):  # type: ignore[type-arg]  # Django itself has no such brackets
    """The second half of signing in, for a user who gave the right password a moment ago."""

    template_name = "accounts/code.html"
    form_class = CodeForm
    next_page = "jobs"
    user: User

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        found = flow.half(request)
        if found is None:
            return redirect("login")
        self.user = found
        return super().dispatch(request, *args, **kwargs)

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "user": self.user}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(next=self.get_redirect_url(), **kwargs)

    def form_valid(self, form: CodeForm) -> HttpResponse:
        flow.end_half(self.request)
        flow.note_success(self.user, way="page")
        login(self.request, self.user, backend="django.contrib.auth.backends.ModelBackend")
        return super().form_valid(form)


class SignOut(views.LogoutView):
    """POST only, so that no link or image can sign a user out."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with audit.change():
            if isinstance(request.user, User):
                audit.record(AuditAction.LOGOUT, by=request.user, on=request.user)
            response = super().post(request, *args, **kwargs)
        response.headers["Clear-Site-Data"] = '"cache"'  # pages that the browser cached
        return response
