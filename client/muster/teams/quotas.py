"""Operations on flavors, cohorts and the quotas of teams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from muster.http.call import Call, given, nothing, page, place
from muster.http.session import Session
from muster.teams.models_quotas import Cohort, Flavor, Quota, QuotaRequest, Usage


class Quotas(Session):
    async def flavors(self) -> list[Flavor]:
        """Return the kinds of devices that quotas are counted in."""
        return await self._whole(page("/flavors", parse=Flavor.parse))

    async def make_flavor(self, /, name: str, **fields: Any) -> Flavor:
        """Make a flavor, as a platform administrator: cluster, resource, gpus_per_node, node_selector."""
        return await self._send(
            Call("PUT", place("flavors", name), Flavor.parse, json=dict(fields), is_repeatable=True)
        )

    async def remove_flavor(self, name: str) -> None:
        """Remove a flavor, as a platform administrator. Raises Conflict where a queue or a quota has it."""
        return await self._send(Call("DELETE", place("flavors", name), nothing))

    async def cohorts(self) -> list[Cohort]:
        """Return the groups of teams that lend each other quota."""
        return await self._whole(page("/cohorts", parse=Cohort.parse))

    async def set_cohort(self, name: str, *, above: str | None = None) -> Cohort:
        """Make a cohort, or move it, as a platform administrator."""
        call = Call("PUT", place("cohorts", name), Cohort.parse, json={"above": above}, is_repeatable=True)
        return await self._send(call)

    async def remove_cohort(self, name: str) -> None:
        """Remove a cohort, as a platform administrator. Raises Conflict where something is in it."""
        return await self._send(Call("DELETE", place("cohorts", name), nothing))

    async def quotas(self, team: str) -> list[Quota]:
        """Return what a team has of each flavor, and what it uses, borrows and lends of it. Raises NotFound."""
        missing = f"no team {team} that you may see: `muster teams` lists them"
        return await self._whole(page(place("teams", team, "quotas"), parse=Quota.parse, missing=missing))

    async def set_quota(self, team: str, flavor: str, fields: Mapping[str, Any]) -> Quota:
        """Set a team's quota, as a platform administrator; fields that are left out stay as they are.

        `fields`: nominal, borrowing_limit and lending_limit (None: no limit), weight, cohort (None: none), reason, and
        version: the one that was seen. Raises NotFound, and Conflict where it has changed since.
        """
        missing = f"no team {team} that you may see: `muster teams` lists them"
        path = place("teams", team, "quotas", flavor)
        return await self._send(Call("PUT", path, Quota.parse, json=dict(fields), is_repeatable=True, missing=missing))

    async def remove_quota(self, team: str, flavor: str) -> None:
        """Take a team's quota of a flavor away, as a platform administrator: its queues stand by themselves then."""
        return await self._send(Call("DELETE", place("teams", team, "quotas", flavor), nothing))

    def quota_requests(self, *, state: str | None = None) -> AsyncIterator[QuotaRequest]:
        """List requests for quota of your teams, the newest first; `state`: open, granted, declined or withdrawn."""
        return self._items(page("/quota-requests", parse=QuotaRequest.parse, state=state))

    async def ask_for_quota(
        self, *, slots: int, why: str, queue: str | None = None, team: str | None = None, flavor: str | None = None
    ) -> QuotaRequest:
        """Ask for more of a queue, or of what a team has of a flavor; `slots` is in all.

        Raises Conflict where somebody asks for that already.
        """
        body = given(queue=queue, team=team, flavor=flavor, slots=slots, why=why)
        return await self._send(Call("POST", "/quota-requests", QuotaRequest.parse, json=body))

    async def decide_quota(
        self, number: int, verdict: str, *, slots: int | None = None, answer: str = ""
    ) -> QuotaRequest:
        """Decide about a request: `verdict` is grant or decline. Raises Conflict if somebody has."""
        body = given(verdict=verdict, slots=slots, answer=answer or None)
        return await self._send(_of_request("POST", number, json=body))

    async def withdraw_quota(self, number: int) -> QuotaRequest:
        """Take back what you asked for. Raises Conflict if it was decided."""
        return await self._send(_of_request("DELETE", number))

    async def usage(
        self,
        *,
        by: str = "team",
        team: str | None = None,
        since: str | None = None,
        until: str | None = None,
        is_daily: bool = False,
    ) -> list[Usage]:
        """Return hours times slots that your teams used, by team, queue, user or job, the largest first.

        `since` and `until` (not included) are days in UTC such as 2026-03-01; the last 30 days without them.
        """
        step = "day" if is_daily else None
        return await self._whole(
            page("/usage", parse=Usage.parse, by=by, team=team, since=since, until=until, step=step)
        )


def _of_request(method: str, number: int, *, json: Mapping[str, Any] | None = None) -> Call[QuotaRequest]:
    missing = f"no request {number} that you may see: `muster requests list` lists them"
    path = place("quota-requests", str(number))
    return Call(method, path, QuotaRequest.parse, json=json, missing=missing)
