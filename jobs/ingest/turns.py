"""Whose batch is applied next: teams take turns, so that one team's waiting batches delay no other team.

Turns are handled within one event loop, so nothing here needs a lock.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.limits.fair_queue import FairQueue

MOST_REMEMBERED = 10_000

_teams: dict[int, int] = {}  # job -> team, as ingest last read it; an agent's token does not name the team


def note_team(job: int, team: int) -> None:
    if len(_teams) >= MOST_REMEMBERED:
        _teams.clear()
    _teams[job] = team


def payer(job: int) -> str:
    """Return who is charged for a job's batches: its team, or the job itself until its first batch was read."""
    team = _teams.get(job)
    return f"job {job}" if team is None else f"team {team}"


class Turns:
    """`at_once` concurrent turns. Waiting payers are served in rotation, one batch each."""

    def __init__(self, at_once: int):
        self.free = at_once
        self.waiting = FairQueue[str, asyncio.Future[None]]()

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        await self._wait(who)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, who: str) -> None:
        if self.free:
            self.free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        self.waiting.push(mine, group=who)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # its turn came in the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while following := self.waiting.pop():
            if not following[1].done():
                following[1].set_result(None)
                return
        self.free += 1
