from django.urls import path

from . import pages

urlpatterns = [
    path("teams/<slug:team>/secrets", pages.secrets, name="team-secrets"),
    path("teams/<slug:team>/secrets/<slug:name>", pages.secret, name="team-secret"),
]
