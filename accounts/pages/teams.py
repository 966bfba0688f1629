"""/teams and /teams/NAME: who is in a team with which role, and its service accounts."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts import members
from accounts.models import Role, Team
from accounts.permissions import Act, is_platform_admin, may, role_in

from .parts import UserRequest, answer, attempt, text


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def teams(request: UserRequest) -> HttpResponse:
    if request.method == "POST":
        name = text(request, "name")
        if attempt(request, lambda: members.make_team(name=name, by=request.user), done=f"Team {name} was created."):
            return redirect("team", team=name)
        return redirect("teams")
    people = Count("memberships", filter=Q(memberships__user__service_team=None))
    rows = members.teams_of(request.user).annotate(people=people).order_by("name")
    own = dict(request.user.memberships.values_list("team_id", "role"))
    context = {
        "rows": [(team, own.get(team.pk, "")) for team in rows],
        "may_make": is_platform_admin(request.user),
    }
    return answer(request, template="accounts/teams.html", context=context)


@login_required
@require_safe
def team(request: UserRequest, team: str) -> HttpResponse:
    found = members.readable_team(request.user, team)
    context = {
        "team": found,
        "people": members.members_of(found).filter(user__service_team=None),
        "programs": members.service_accounts_of(found),
        "roles": Role.choices,
        "own": role_in(request.user, found),
        "may_manage": may(request.user, Act.MANAGE, found),
    }
    return answer(request, template="accounts/team.html", context=context)


@login_required
@require_POST
def set_member(request: UserRequest, team: str) -> HttpResponse:
    username, role = text(request, "username"), text(request, "role")
    if question := _question(request, team, username, role=role, asked=f"Make {username} a {role}?"):
        return question

    def change(found: Team) -> Any:
        return members.set_role(team=found, username=username, role=role, by=request.user)

    return _change(request, team, change, done=f"{username} is now {role} of {team}.")


@login_required
@require_POST
def remove_member(request: UserRequest, team: str) -> HttpResponse:
    username = text(request, "username")
    if question := _question(request, team, username, role=None, asked=f"Remove {username} from {team}?"):
        return question

    def change(found: Team) -> Any:
        return members.remove(team=found, username=username, by=request.user)

    return _change(request, team, change, done=f"{username} is no longer in {team}.")


@login_required
@require_POST
def make_service_account(request: UserRequest, team: str) -> HttpResponse:
    name, role = text(request, "name"), text(request, "role")

    def change(found: Team) -> Any:
        return members.make_service_account(team=found, name=name, role=role, by=request.user)

    return _change(request, team, change, done=f"{name}@{team} was created; create a token for it next.")


@login_required
@require_POST
def remove_service_account(request: UserRequest, team: str) -> HttpResponse:
    username = text(request, "username")

    def change(found: Team) -> Any:
        return members.remove_service_account(team=found, username=username, by=request.user)

    return _change(request, team, change, done=f"{username} and its tokens were removed.")


def _question(request: UserRequest, name: str, username: str, *, role: str | None, asked: str) -> HttpResponse | None:
    """Return a page that asks before something is lost that only others can give back; None if nothing is."""
    team = members.readable_team(request.user, name)
    if request.POST.get("sure") or not may(request.user, Act.MANAGE, team):
        return None
    losses = members.losses(team=team, username=username, role=role, by=request.user)
    context = {"team": team, "username": username, "role": role, "losses": losses, "asked": asked}
    return answer(request, template="accounts/question.html", context=context) if losses else None


def _change(request: UserRequest, name: str, change: Callable[[Team], Any], *, done: str) -> HttpResponse:
    """Change a team and redirect to it, or to the list for users who removed themselves.

    404 for users who may not read the team, 403 for those who may only read it.
    """
    found = members.readable_team(request.user, name)
    attempt(request, lambda: change(found), done=done)
    still = members.teams_of(request.user).filter(pk=found.pk).exists()
    return redirect("team", team=name) if still else redirect("teams")
