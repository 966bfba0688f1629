from django.urls import path

from .views import SignIn, SignOut

urlpatterns = [
    path("login", SignIn.as_view(), name="login"),
    path("logout", SignOut.as_view(), name="logout"),
]
