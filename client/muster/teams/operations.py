"""Operations on yourself, tokens, teams, their members and service accounts, queues' quotas, and the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from muster.errors import NotFound
from muster.http.call import Call, get, given, nothing, page, page_size, place
from muster.http.session import Session
from muster.jobs.models import Ceiling, Login, Me, Queue, QueueVersion
from muster.teams.models_teams import AllowedObject, AuditEntry, Member, Team, Token


class Teams(Session):
    async def me(self) -> Me:
        """Return your user, your teams, and what the token in use may do."""
        return await self._send(get("/me", parse=Me.parse))

    async def login(
        self,
        username: str,
        *,
        password: str,
        name: str = "SDK",
        code: str | None = None,
        scope: str | None = None,
        expires_in_days: int | None = None,
    ) -> Login:
        """Return a new token, by password, and by `code` where the account has a second factor.

        `name` distinguishes the user's tokens; `scope` is read, submit or manage.
        """
        body = {"username": username, "password": password, "name": name}
        body.update(given(code=code, scope=scope, expires_in_days=expires_in_days))
        return await self._send(Call("POST", "/login", Login.parse, json=body, is_public=True))

    async def tokens(self) -> list[Token]:
        """Return your tokens, and those of service accounts that you administer; never their text."""
        return await self._whole(page("/tokens", parse=Token.parse))

    async def create_token(
        self,
        name: str,
        *,
        scope: str | None = None,
        team: str | None = None,
        expires_in_days: int | None = None,
        service_account: str | None = None,
    ) -> Token:
        """Create a token; its `text` is returned only this once. `scope` is read, submit or manage."""
        body = given(
            name=name, scope=scope, team=team, expires_in_days=expires_in_days, service_account=service_account
        )
        return await self._send(Call("POST", "/tokens", Token.parse, json=body))

    async def revoke_token(self, token_id: int) -> None:
        """Revoke a token: it is refused from now on. Raises NotFound."""
        missing = f"no token {token_id} that you may revoke: `muster tokens` lists them"
        return await self._send(_delete(place("tokens", token_id), missing=missing))

    async def revoke_own_token(self) -> None:
        """Revoke the token that this client uses. Raises NotFound where the server does not list it."""
        used = (await self.me()).token
        if used and used.id is not None:
            return await self.revoke_token(used.id)
        for one in await self.tokens():
            if used and one.prefix == used.prefix and one.revoked_at is None:
                return await self.revoke_token(one.id)
        raise NotFound(404, detail="the server does not list the token in use", hint="revoke it on its web page")

    async def teams(self) -> list[Team]:
        """Return the teams you may see, with your own role in each."""
        return await self._whole(page("/teams", parse=Team.parse))

    async def team(self, name: str) -> Team:
        """Return one team. Raises NotFound."""
        return await self._send(get(place("teams", name), parse=Team.parse, missing=_no_team(name)))

    async def create_team(self, name: str) -> Team:
        """Create a team; for platform administrators."""
        return await self._send(Call("POST", "/teams", Team.parse, json={"name": name}))

    async def members(self, team: str) -> list[Member]:
        """Return the members of a team with their roles, service accounts included. Raises NotFound."""
        return await self._whole(page(place("teams", team, "members"), parse=Member.parse, missing=_no_team(team)))

    async def set_member(self, team: str, username: str, *, role: str) -> Member:
        """Add a user, or change the role (viewer, member, admin) of a member."""
        path = place("teams", team, "members", username)
        return await self._send(Call("PUT", path, Member.parse, json={"role": role}, is_repeatable=True))

    async def remove_member(self, team: str, username: str) -> None:
        """Remove a member; they keep their account and their jobs, and no longer see the team. Raises NotFound."""
        missing = f"{username} is not a member of {team}: `muster teams members list {team}` lists the members"
        return await self._send(_delete(place("teams", team, "members", username), missing=missing))

    async def service_accounts(self, team: str) -> list[Member]:
        """Return a team's service accounts, which are for programs."""
        path = place("teams", team, "service-accounts")
        return await self._whole(page(path, parse=Member.parse, missing=_no_team(team)))

    async def create_service_account(self, team: str, name: str, *, role: str) -> Member:
        """Create an account for programs, which cannot log in.

        `create_token(..., service_account=name)` makes its token.
        """
        body = {"name": name, "role": role}
        return await self._send(Call("POST", place("teams", team, "service-accounts"), Member.parse, json=body))

    async def remove_service_account(self, team: str, username: str) -> None:
        """Remove a service account; its tokens are refused from then on. Raises NotFound."""
        missing = f"{team} has no service account {username}: `muster teams accounts list {team}` shows them"
        return await self._send(_delete(place("teams", team, "service-accounts", username), missing=missing))

    async def queues(self) -> list[Queue]:
        """Return the queues of your teams, and how much of each is used."""
        return await self._whole(page("/queues", parse=Queue.parse))

    async def queue(self, name: str) -> Queue:
        """Return one queue, its quota and how much is used. Raises NotFound."""
        return await self._send(get(place("queues", name), parse=Queue.parse, missing=_no_queue(name)))

    async def create_queue(self, /, name: str, **fields: Any) -> Queue:
        """Create a queue; for platform administrators.

        `fields` as the API names them (team, cluster, slots, resource, ...).
        """
        return await self._send(Call("POST", "/queues", Queue.parse, json={"name": name, **given(**fields)}))

    async def set_queue(self, /, name: str, *, to_null: Sequence[str] = (), **fields: Any) -> Queue:
        """Change a quota or whether the queue is open, as an administrator of its team.

        `to_null`: fields to set to null, such as borrowing_limit for no limit.
        """
        path, body = place("queues", name), {**given(**fields), **dict.fromkeys(to_null)}
        call = Call("PATCH", path, Queue.parse, json=body, is_repeatable=True, missing=_no_queue(name))
        return await self._send(call)

    async def queue_versions(self, name: str) -> list[QueueVersion]:
        """Return what the queue said of its jobs' pods, newest first. Raises NotFound."""
        path = place("queues", name, "versions")
        return await self._whole(page(path, parse=QueueVersion.parse, missing=_no_queue(name)))

    async def allowed_objects(self, team: str) -> list[AllowedObject]:
        """Return which objects of clusters the pods of a team's jobs may name. Raises NotFound."""
        return await self._whole(
            page(place("teams", team, "allowed"), parse=AllowedObject.parse, missing=_no_team(team))
        )

    async def allow_object(self, team: str, *, cluster: str, kind: str, name: str) -> AllowedObject:
        """Allow one, as a platform administrator.

        `kind` is service_account, token, pull_secret, secret, config_map or claim.
        """
        body = {"cluster": cluster, "kind": kind, "name": name}
        call = Call(
            "POST",
            place("teams", team, "allowed"),
            AllowedObject.parse,
            json=body,
            is_repeatable=True,
            missing=_no_team(team),
        )
        return await self._send(call)

    async def forbid_object(self, team: str, id: int) -> None:
        """Take one off the list. Raises NotFound."""
        missing = f"nothing of this number is allowed: `muster teams allowed {team}` lists what is"
        return await self._send(_delete(place("teams", team, "allowed", id), missing=missing))

    async def ceilings(self, team: str) -> list[Ceiling]:
        """Return how much all queues of a team together may hold of each resource. Raises NotFound."""
        return await self._whole(page(place("teams", team, "ceilings"), parse=Ceiling.parse, missing=_no_team(team)))

    async def set_ceiling(self, team: str, resource: str, slots: int | None, *, reason: str = "") -> Ceiling:
        """Set that ceiling, as a platform administrator; None is no ceiling. Raises NotFound."""
        body = {"slots": slots, "reason": reason}
        path = place("teams", team, "ceilings", resource)
        call = Call("PUT", path, Ceiling.parse, json=body, is_repeatable=True, missing=_no_team(team))
        return await self._send(call)

    def audit(
        self, *, team: str | None = None, actor: str | None = None, act: str | None = None, limit: int | None = None
    ) -> AsyncIterator[AuditEntry]:
        """List who changed what, newest first."""
        first = page("/audit", parse=AuditEntry.parse, team=team, actor=actor, act=act, limit=page_size(limit))
        return self._items(first, limit=limit)


def _delete(path: str, *, missing: str) -> Call[None]:
    # Not repeatable: a retry would find nothing left to delete, which would look like a failure.
    return Call("DELETE", path, nothing, missing=missing)


def _no_team(name: str) -> str:
    return f"no team {name} that you may see: `muster teams` lists them"


def _no_queue(name: str) -> str:
    return f"no queue {name} that you may see: `muster queues` lists them"
