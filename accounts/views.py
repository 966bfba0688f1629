"""Signing in and out, and changing one's password: Django's own views with our templates."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.forms import TextInput
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_http_methods


class SignInForm(AuthenticationForm):
    """Django's own names the longest user name to browsers only; a longer one must not reach the table of failures."""

    username = UsernameField(max_length=150, widget=TextInput(attrs={"autofocus": True}))


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class SignIn(views.LoginView):
    form_class = SignInForm
    template_name = "accounts/login.html"
    redirect_authenticated_user = True


class SignOut(views.LogoutView):
    """POST only, so that no link or image can sign somebody out."""

    http_method_names = ["post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().dispatch(request, *args, **kwargs)
        response.headers["Clear-Site-Data"] = '"cache"'  # pages that the browser kept
        return response


class ChangePassword(views.PasswordChangeView):
    """Asks for the present one. Every other session of this person ends: Django ties sessions to the password."""

    template_name = "accounts/password.html"
    http_method_names = ["get", "head", "post"]
    success_url = reverse_lazy("jobs")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, "Your password was changed. Other browsers were signed out.")
        return super().form_valid(form)
