from django.urls import path

from .views import ChangePassword, SignIn, SignOut

urlpatterns = [
    path("login", SignIn.as_view(), name="login"),
    path("password", ChangePassword.as_view(), name="password"),
    path("logout", SignOut.as_view(), name="logout"),
]
