"""Hints to browsers: which listener receives which hint, how often, and what an open stream costs."""

import asyncio
import json
import time
from contextlib import closing

import httpx
import psutil
import pytest
from django.db import connection, transaction
from django.test import Client

from accounts.access import Access
from common.signals import doorbell, hints
from common.signals.hints import HEARTBEAT, SYNC, Hub, Listener
from controlplane import live

STREAMS = 200
POOL = 8  # connections of a web process at most, MUSTER_DB_POOL
SOMEBODY = Access(1, None, session="x")


def hint(job: int = 42, team: int = 1, what: str = "ranks") -> dict:
    return {"job": job, "team": team, "what": what}


def inside(act):
    """Run in an event loop, because a listener belongs to one."""

    async def run():
        return act()

    return asyncio.run(run())


@pytest.mark.parametrize(("teams", "hears"), [({1}, True), ({2}, False), (set(), False), (None, True)])
def test_a_listener_receives_only_hints_of_its_teams(teams, hears):
    def act():
        listener = Listener(None if teams is None else frozenset(teams), SOMEBODY)
        listener.receive(hint(team=1))
        return bool(listener.pending)

    assert inside(act) is hears


def test_repeated_hints_are_sent_once():
    def act():
        listener = Listener(None, SOMEBODY)
        first = listener.take()
        for _ in range(100):
            listener.receive(hint())
        listener.receive(hint(what="logs"))
        return first, listener.take(), listener.pending

    first, second, pending = inside(act)
    assert first == SYNC
    assert second == 'event: hints\ndata: [[42, "ranks"], [42, "logs"]]\n\n'
    assert not pending


def test_after_a_gap_a_full_sync_is_sent():
    def act():
        listener = Listener(None, SOMEBODY)
        listener.take()
        listener.receive(hint())
        listener.miss()
        return listener.take()

    assert inside(act) == SYNC


def test_all_pages_fetch_everything_if_hints_were_lost():
    def act():
        hub, listener = Hub(), Listener(frozenset(), SOMEBODY)
        hub.listeners.add(listener)
        listener.take()
        hub.dispatch(doorbell.LOST.encode())
        return listener.take()

    assert inside(act) == SYNC


def test_without_redis_a_stream_says_again_and_again_to_fetch_everything(settings, monkeypatch, db, people):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(live, "SYNC_WITHOUT_HINTS_SECONDS", 0.01)
    monkeypatch.setattr(live, "RECHECK_WITHOUT_HINTS_SECONDS", 0.02)
    monkeypatch.setattr(hints, "SETTLE_SECONDS", 0.01)

    async def may_go_on(self, hub: Hub) -> bool:
        self.is_doubtful = False
        return True

    monkeypatch.setattr(Listener, "may_go_on", may_go_on)

    async def run():
        said = live.events(SOMEBODY)
        return [await anext(said) for _ in range(4)]

    assert asyncio.run(run())[1:] == [SYNC] * 3


@pytest.mark.parametrize("text", [b"not json", b"[]", b"{}", b'{"job": 1}', b"\xff"])
def test_a_malformed_hint_is_dropped(text):
    def act():
        hub, listener = Hub(), Listener(None, SOMEBODY)
        hub.listeners.add(listener)
        hub.dispatch(text)
        return listener.pending

    assert not inside(act)


def test_an_idle_stream_sends_heartbeats():
    async def run():
        listener = Listener(None, SOMEBODY)
        listener.take()
        await live.news(listener, within=0.01)
        return listener.take()

    assert asyncio.run(run()) == HEARTBEAT


def test_hints_require_a_session(db):
    assert Client().get("/live").status_code == 401


def test_a_stream_starts_with_sync_and_sends_hints_of_the_users_teams(site, team, people):
    with closing(site.sign_in("owner")) as client, client.stream("GET", "/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        said = (line for line in lines if line.startswith("event"))

        def ring() -> None:
            with transaction.atomic():
                doorbell.hint(job=7, team=team.pk + 1000, what="state")
                doorbell.hint(job=8, team=team.pk, what="state")

        assert next(said) == "event: sync"
        ring()
        while next(said) == "event: sync":  # synced again: the server subscribed after the first hint was sent
            ring()
        assert json.loads(next(lines).removeprefix("data: ")) == [[8, "state"]]


def sessions() -> int:
    """The number of connections to this database. Call it in its own thread: it closes that thread's connection."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return cursor.fetchone()[0]
    finally:
        connection.close()


def test_two_hundred_open_streams_hold_neither_threads_nor_connections(site):
    cookies = []
    for name in ("owner", "teammate"):  # the limit for one user is half as many
        with closing(site.sign_in(name)) as client:
            cookies.append(dict(client.cookies))
    asyncio.run(_open_many(site, *cookies))


async def _open_many(site, cookies, others_cookies):
    process = psutil.Process(site.pid)
    # Connections are not reused: the server sometimes closes an idle one just as it is taken again.
    limits = httpx.Limits(max_connections=STREAMS + 10, max_keepalive_connections=0)
    asking = {"base_url": site.url, "limits": limits, "timeout": 240}
    async with (
        httpx.AsyncClient(cookies=cookies, **asking) as client,
        httpx.AsyncClient(cookies=others_cookies, **asking) as other,
    ):
        before = await asyncio.to_thread(sessions)
        opened = [asyncio.Event() for _ in range(STREAMS)]
        clients = (client, other) * (STREAMS // 2)
        streams = [asyncio.create_task(_listen(one, event)) for one, event in zip(clients, opened, strict=True)]
        # If a stream cannot be opened, its error is raised at once.
        await asyncio.wait_for(_all_opened(opened, streams), 240)
        began = time.monotonic()
        assert (await client.get("/login")).status_code == 302
        print(f"/login with {STREAMS} open streams: {time.monotonic() - began:.3f} s")
        # The pool may have grown meanwhile, and adds a connection some time after it was wanted: what streams hold would be 200.
        assert await asyncio.to_thread(sessions) <= before + POOL
        assert process.num_threads() < 40
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _all_opened(opened, streams):
    for event, stream in zip(opened, streams, strict=True):
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait((waiting, stream), return_when=asyncio.FIRST_COMPLETED)
        if not event.is_set():
            waiting.cancel()
            raise AssertionError("a stream ended before it began") from stream.exception()


async def _listen(client: httpx.AsyncClient, opened: asyncio.Event) -> None:
    async with client.stream("GET", "/live") as stream:
        assert stream.status_code == 200, await stream.aread()
        async for line in stream.aiter_lines():
            if line.startswith("event: sync"):
                opened.set()
