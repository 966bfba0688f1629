"""The routes of /api/v1 for users, teams, tokens and the audit."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from .api import LoginView, MeView
from .audit_api import AuditView
from .team_api import MembersView, MemberView, ServiceAccountsView, ServiceAccountView, TeamsView, TeamView
from .token_api import TokensView, TokenView


class Username(StringConverter):
    """What Django allows in a user name, which includes dots and @."""

    regex = r"[\w.@+-]{1,150}"


register_converter(Username, "username")

urlpatterns = [
    path("login", LoginView.as_view(), name="api-login"),
    path("me", MeView.as_view(), name="api-me"),
    path("tokens", TokensView.as_view(), name="api-tokens"),
    path("tokens/<int:pk>", TokenView.as_view(), name="api-token"),
    path("teams", TeamsView.as_view(), name="api-teams"),
    path("teams/<slug:team>", TeamView.as_view(), name="api-team"),
    path("teams/<slug:team>/members", MembersView.as_view(), name="api-members"),
    path("teams/<slug:team>/members/<username:username>", MemberView.as_view(), name="api-member"),
    path("teams/<slug:team>/service-accounts", ServiceAccountsView.as_view(), name="api-service-accounts"),
    path(
        "teams/<slug:team>/service-accounts/<username:username>",
        ServiceAccountView.as_view(),
        name="api-service-account",
    ),
    path("audit", AuditView.as_view(), name="api-audit"),
]
