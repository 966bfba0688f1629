"""Requests about yourself, tokens, teams, their members and service accounts, queues' quotas, and the audit."""

from __future__ import annotations

from typing import Any

from muster.errors import NotFound
from muster.http.call import Call, Flow, Page, ask, get, given, nothing, page, place, whole
from muster.jobs import calls
from muster.jobs.models import Ceiling, Login, Me, Queue
from muster.teams.models_teams import AuditEntry, Member, Team, Token


def me() -> Flow[Me]:
    """Return your user, your teams, and what the token in use may do."""
    return (yield from ask(calls.me()))


def login(
    username: str,
    *,
    password: str,
    name: str = "SDK",
    code: str | None = None,
    scope: str | None = None,
    expires_in_days: int | None = None,
) -> Flow[Login]:
    """Return a new token, by password, and by `code` where the account has a second factor.

    `name` distinguishes the user's tokens; `scope` is read, submit or manage.
    """
    asked: dict[str, Any] = {"code": code, "scope": scope, "expires_in_days": expires_in_days}
    return (yield from ask(calls.login(username, password=password, name=name, **asked)))


def tokens() -> Flow[list[Token]]:
    """Return your tokens, and those of service accounts that you administer; never their text."""
    return (yield from whole(page("/tokens", parse=Token.parse)))


def create_token(
    name: str,
    *,
    scope: str | None = None,
    team: str | None = None,
    expires_in_days: int | None = None,
    service_account: str | None = None,
) -> Flow[Token]:
    """Create a token; its `text` is returned only this once. `scope` is read, submit or manage."""
    body = given(name=name, scope=scope, team=team, expires_in_days=expires_in_days, service_account=service_account)
    return (yield from ask(Call("POST", "/tokens", Token.parse, json=body)))


def revoke_token(token_id: int) -> Flow[None]:
    """Revoke a token: it is refused from now on. Raises NotFound."""
    missing = f"no token {token_id} that you may revoke: `muster tokens` lists them"
    return (yield from ask(_delete(place("tokens", token_id), missing=missing)))


def revoke_own_token() -> Flow[None]:
    """Revoke the token that this client uses. Raises NotFound where the server does not list it."""
    used = (yield from ask(calls.me())).token
    if used and used.id is not None:
        return (yield from revoke_token(used.id))
    for one in (yield from tokens()):
        if used and one.prefix == used.prefix and one.revoked_at is None:
            return (yield from revoke_token(one.id))
    raise NotFound(404, detail="the server does not list the token in use", hint="revoke it on its web page")


def teams() -> Flow[list[Team]]:
    """Return the teams you may see, with your own role in each."""
    return (yield from whole(page("/teams", parse=Team.parse)))


def team(name: str) -> Flow[Team]:
    """Return one team. Raises NotFound."""
    return (yield from ask(get(place("teams", name), parse=Team.parse, missing=_no_team(name))))


def create_team(name: str) -> Flow[Team]:
    """Create a team; for platform administrators."""
    return (yield from ask(Call("POST", "/teams", Team.parse, json={"name": name})))


def members(team: str) -> Flow[list[Member]]:
    """Return the members of a team with their roles, service accounts included. Raises NotFound."""
    return (yield from whole(page(place("teams", team, "members"), parse=Member.parse, missing=_no_team(team))))


def set_member(team: str, username: str, *, role: str) -> Flow[Member]:
    """Add a user, or change the role (viewer, member, admin) of a member."""
    path = place("teams", team, "members", username)
    return (yield from ask(Call("PUT", path, Member.parse, json={"role": role}, is_repeatable=True)))


def remove_member(team: str, username: str) -> Flow[None]:
    """Remove a member; they keep their account and their jobs, and no longer see the team. Raises NotFound."""
    missing = f"{username} is not a member of {team}: `muster teams members list {team}` lists the members"
    return (yield from ask(_delete(place("teams", team, "members", username), missing=missing)))


def service_accounts(team: str) -> Flow[list[Member]]:
    """Return a team's service accounts, which are for programs."""
    path = place("teams", team, "service-accounts")
    return (yield from whole(page(path, parse=Member.parse, missing=_no_team(team))))


def create_service_account(team: str, name: str, *, role: str) -> Flow[Member]:
    """Create an account for programs, which cannot log in.

    `create_token(..., service_account=name)` makes its token.
    """
    body = {"name": name, "role": role}
    return (yield from ask(Call("POST", place("teams", team, "service-accounts"), Member.parse, json=body)))


def remove_service_account(team: str, username: str) -> Flow[None]:
    """Remove a service account; its tokens are refused from then on. Raises NotFound."""
    missing = f"{team} has no service account {username}: `muster teams accounts list {team}` shows them"
    return (yield from ask(_delete(place("teams", team, "service-accounts", username), missing=missing)))


def queues() -> Flow[list[Queue]]:
    """Return the queues of your teams, and how much of each is used."""
    return (yield from whole(calls.queues()))


def queue(name: str) -> Flow[Queue]:
    """Return one queue, its quota and how much is used. Raises NotFound."""
    return (yield from ask(get(place("queues", name), parse=Queue.parse, missing=_no_queue(name))))


def create_queue(name: str, **fields: Any) -> Flow[Queue]:
    """Create a queue; for platform administrators.

    `fields` as the API names them (team, cluster, slots, resource, ...).
    """
    return (yield from ask(Call("POST", "/queues", Queue.parse, json={"name": name, **given(**fields)})))


def set_queue(name: str, **fields: Any) -> Flow[Queue]:
    """Change a quota or whether the queue is open, as an administrator of its team."""
    path = place("queues", name)
    call = Call("PATCH", path, Queue.parse, json=given(**fields), is_repeatable=True, missing=_no_queue(name))
    return (yield from ask(call))


def ceilings(team: str) -> Flow[list[Ceiling]]:
    """Return how much all queues of a team together may hold of each resource. Raises NotFound."""
    return (yield from whole(page(place("teams", team, "ceilings"), parse=Ceiling.parse, missing=_no_team(team))))


def set_ceiling(team: str, resource: str, slots: int | None, *, reason: str = "") -> Flow[Ceiling]:
    """Set that ceiling, as a platform administrator; None is no ceiling. Raises NotFound."""
    body = {"slots": slots, "reason": reason}
    path = place("teams", team, "ceilings", resource)
    call = Call("PUT", path, Ceiling.parse, json=body, is_repeatable=True, missing=_no_team(team))
    return (yield from ask(call))


def audit(
    *, team: str | None = None, actor: str | None = None, act: str | None = None, limit: int | None = None
) -> Call[Page[AuditEntry]]:
    """List who changed what, newest first."""
    return page("/audit", parse=AuditEntry.parse, team=team, actor=actor, act=act, limit=limit)


def _delete(path: str, *, missing: str) -> Call[None]:
    # Not repeatable: a retry would find nothing left to delete, which would look like a failure.
    return Call("DELETE", path, nothing, missing=missing)


def _no_team(name: str) -> str:
    return f"no team {name} that you may see: `muster teams` lists them"


def _no_queue(name: str) -> str:
    return f"no queue {name} that you may see: `muster queues` lists them"
