"""The pages of users and teams."""

from django.contrib.auth.decorators import login_required
from django.urls import path

from .pages import account, audit, people, second_factor, sign_ins, teams, tokens
from .views import SignIn, SignInCode, SignOut

urlpatterns = [
    path("login", SignIn.as_view(), name="login"),
    path("login/code", SignInCode.as_view(), name="login-code"),
    path("logout", SignOut.as_view(), name="logout"),
    path("account", account.account, name="account"),
    path("account/password", login_required(account.ChangePassword.as_view()), name="account-password"),
    path("account/second-factor", second_factor.page, name="account-second-factor"),
    path("account/sessions", sign_ins.page, name="account-sessions"),
    path("account/tokens", tokens.page, name="account-tokens"),
    path("account/tokens/<int:pk>/revoke", tokens.revoke, name="account-token-revoke"),
    path("audit", audit.of_all, name="audit"),
    path("people", people.page, name="people"),
    path("teams", teams.teams, name="teams"),
    path("teams/<slug:team>", teams.team, name="team"),
    path("teams/<slug:team>/audit", audit.of_team, name="team-audit"),
    path("teams/<slug:team>/members", teams.set_member, name="team-member-set"),
    path("teams/<slug:team>/members/remove", teams.remove_member, name="team-member-remove"),
    path("teams/<slug:team>/service-accounts", teams.make_service_account, name="team-service-make"),
    path("teams/<slug:team>/service-accounts/remove", teams.remove_service_account, name="team-service-remove"),
]
