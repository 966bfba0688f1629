"""Operations on webhooks and their deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from muster.http.call import Call, get, given, nothing, page, page_size, place
from muster.http.session import Session
from muster.teams.models_webhooks import Delivery, Webhook


class Webhooks(Session):
    async def webhooks(self, team: str) -> list[Webhook]:
        """Return a team's webhooks. Raises NotFound."""
        missing = f"no team {team} that you may see: `muster teams` lists them"
        return await self._whole(page(place("teams", team, "webhooks"), parse=Webhook.parse, missing=missing))

    async def webhook(self, team: str, name: str) -> Webhook:
        """Return one webhook. Raises NotFound."""
        return await self._send(get(_path(team, name), parse=Webhook.parse, missing=_missing(team, name)))

    async def create_webhook(
        self,
        team: str,
        name: str,
        *,
        url: str,
        events: Sequence[str],
        format: str | None = None,
        all_jobs: bool | None = None,
    ) -> Webhook:
        """Create a webhook, as an administrator of the team; its `secret` is returned only this once.

        `events` are of start, end and failure; `format` is json or slack; without `all_jobs` only jobs that name it.
        """
        body = given(name=name, url=url, events=list(events), format=format, all_jobs=all_jobs)
        return await self._send(Call("POST", place("teams", team, "webhooks"), Webhook.parse, json=body))

    async def set_webhook(self, /, team: str, name: str, **fields: Any) -> Webhook:
        """Change its url, format, events, all_jobs or is_active. Raises NotFound."""
        path, missing = _path(team, name), _missing(team, name)
        call = Call("PATCH", path, Webhook.parse, json=given(**fields), is_repeatable=True, missing=missing)
        return await self._send(call)

    async def rotate_webhook(self, team: str, name: str) -> Webhook:
        """Return it with a new `secret`; the one before signs as well for 24 hours. Raises NotFound."""
        return await self._send(Call("POST", _path(team, name, "rotate"), Webhook.parse, missing=_missing(team, name)))

    async def test_webhook(self, team: str, name: str) -> Delivery:
        """Send a test, and return its delivery, which is yet to be sent. Raises NotFound."""
        return await self._send(Call("POST", _path(team, name, "test"), Delivery.parse, missing=_missing(team, name)))

    async def delete_webhook(self, team: str, name: str) -> None:
        """Delete a webhook with its history. Raises NotFound."""
        # Not repeatable: a retry would find nothing left to delete, which would look like a failure.
        return await self._send(Call("DELETE", _path(team, name), nothing, missing=_missing(team, name)))

    def deliveries(self, team: str, name: str, *, limit: int | None = None) -> AsyncIterator[Delivery]:
        """List a webhook's deliveries, newest first."""
        path, missing = _path(team, name, "deliveries"), _missing(team, name)
        return self._items(page(path, parse=Delivery.parse, missing=missing, limit=page_size(limit)), limit=limit)

    async def send_again(self, team: str, name: str, delivery: int) -> Delivery:
        """Send a delivery once more; it keeps its id. Raises NotFound."""
        missing = f"webhook {name} has no delivery {delivery}: `muster webhooks deliveries {team} {name}` lists them"
        path = _path(team, name, "deliveries", delivery, "again")
        return await self._send(Call("POST", path, Delivery.parse, missing=missing))


def _path(team: str, name: str, *rest: object) -> str:
    return place("teams", team, "webhooks", name, *rest)


def _missing(team: str, name: str) -> str:
    return f"no webhook {name} of a team {team} that you may see: `muster webhooks list {team}` lists them"
