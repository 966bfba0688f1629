from django.urls import path

from . import api

urlpatterns = [
    path("teams/<slug:team>/secrets", api.TeamSecretsView.as_view(), name="api-team-secrets"),
    path("teams/<slug:team>/secrets/<slug:name>", api.TeamSecretView.as_view(), name="api-team-secret"),
]
