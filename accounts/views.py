"""Signing in and out, and changing one's password: Django's own views with our templates."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import views
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse_lazy


class SignIn(views.LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True
    http_method_names = ["get", "head", "post"]


class SignOut(views.LogoutView):
    """POST only, so that no link or image can sign somebody out."""

    http_method_names = ["post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        response.headers["Clear-Site-Data"] = '"cache"'  # type: ignore[attr-defined]  # pages that the browser kept
        return response


class ChangePassword(views.PasswordChangeView):
    """Asks for the present one. Every other session of this person ends: Django ties sessions to the password."""

    template_name = "accounts/password.html"
    http_method_names = ["get", "head", "post"]
    success_url = reverse_lazy("jobs")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, "Your password was changed. Other browsers were signed out.")
        return super().form_valid(form)
