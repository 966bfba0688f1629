"""Operations on secrets of teams."""

from __future__ import annotations

from collections.abc import Mapping

from muster.http.call import Call, get, nothing, page, place
from muster.http.session import Session
from muster.teams.models_secrets import TeamSecret


class TeamSecrets(Session):
    async def team_secrets(self, team: str) -> list[TeamSecret]:
        """Return a team's secrets, without their values. Raises NotFound."""
        missing = f"no team {team} that you may see: `muster teams` lists them"
        return await self._whole(page(place("teams", team, "secrets"), parse=TeamSecret.parse, missing=missing))

    async def team_secret(self, team: str, name: str) -> TeamSecret:
        """Return one secret, without its values. Raises NotFound."""
        return await self._send(get(_path(team, name), parse=TeamSecret.parse, missing=_missing(team, name)))

    async def create_team_secret(
        self, team: str, name: str, *, values: Mapping[str, str], kind: str = "env"
    ) -> TeamSecret:
        """Create a secret, as an administrator of the team. `kind` is env, file, or registry.

        `values` are by name of a variable or a file; a registry login has server, username and password.
        """
        body = {"name": name, "kind": kind, "values": dict(values)}
        return await self._send(Call("POST", place("teams", team, "secrets"), TeamSecret.parse, json=body))

    async def set_team_secret(self, team: str, name: str, *, values: Mapping[str, str | None]) -> TeamSecret:
        """Make a version with these values over the ones before; None removes one. Raises NotFound.

        The next attempt of each job that names the secret gets it.
        """
        # Not repeatable: each call makes a version.
        call = Call(
            "PATCH", _path(team, name), TeamSecret.parse, json={"values": dict(values)}, missing=_missing(team, name)
        )
        return await self._send(call)

    async def delete_team_secret(self, team: str, name: str) -> None:
        """Delete a secret that no open job and no queue names. Raises NotFound and Conflict."""
        return await self._send(Call("DELETE", _path(team, name), nothing, missing=_missing(team, name)))


def _path(team: str, name: str) -> str:
    return place("teams", team, "secrets", name)


def _missing(team: str, name: str) -> str:
    return f"no secret {name} of a team {team} that you may see: `muster secrets list {team}` lists them"
