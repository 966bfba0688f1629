"""Signing in and out: Django's own views with our templates."""

from django.contrib.auth import views


class SignIn(views.LoginView):
    template_name = "accounts/login.html"
    redirect_authenticated_user = True


class SignOut(views.LogoutView):
    """POST only, so that no link or image can sign somebody out."""
