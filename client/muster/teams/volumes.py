"""Operations on volumes of teams."""

from __future__ import annotations

from typing import Any

from muster.http.call import Call, get, given, page, place
from muster.http.session import Session
from muster.teams.models_volumes import Volume


class Volumes(Session):
    async def volumes(self, team: str) -> list[Volume]:
        """Return a team's volumes. Raises NotFound."""
        missing = f"no team {team} that you may see: `muster teams` lists them"
        return await self._whole(page(place("teams", team, "volumes"), parse=Volume.parse, missing=missing))

    async def volume(self, team: str, name: str) -> Volume:
        """Return one volume. Raises NotFound."""
        return await self._send(get(_path(team, name), parse=Volume.parse, missing=_missing(team, name)))

    async def create_volume(self, /, team: str, name: str, *, cluster: str, **fields: Any) -> Volume:
        """Create a volume, as an administrator of the team.

        Further fields: size or claim, storage_class, access_mode, mount_path, is_read_only.
        """
        body = given(name=name, cluster=cluster, **fields)
        return await self._send(Call("POST", place("teams", team, "volumes"), Volume.parse, json=body))

    async def set_volume(self, /, team: str, name: str, **fields: Any) -> Volume:
        """Change its size, mount_path or is_read_only. Raises NotFound."""
        path, missing = _path(team, name), _missing(team, name)
        call = Call("PATCH", path, Volume.parse, json=given(**fields), is_repeatable=True, missing=missing)
        return await self._send(call)

    async def delete_volume(self, team: str, name: str) -> Volume:
        """Ask for the deletion of a volume that nothing uses, with its data. Raises NotFound and Conflict."""
        return await self._send(Call("DELETE", _path(team, name), Volume.parse, missing=_missing(team, name)))


def _path(team: str, name: str) -> str:
    return place("teams", team, "volumes", name)


def _missing(team: str, name: str) -> str:
    return f"no volume {name} of a team {team} that you may see: `muster volumes list {team}` lists them"
