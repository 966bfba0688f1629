"""The log as server-sent events: starts at the reader's cursor, continues on hints and ends with the job."""

import asyncio
import json
import threading
from contextlib import closing

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client

from accounts.access import Access
from accounts.models import Token
from common.http import streaming
from common.signals import hints
from jobs.api import log_stream
from jobs.ingest import apply
from tests.support.builders import batch, identity, log_item
from tests.support.patience import PATIENCE_SECONDS

BEGAN = 1_763_700_000


def events(lines):
    """(kind, id, data) of each server-sent event, except changes of phase."""
    return (one for one in every_event(lines) if one[0] != "phase")


def every_event(lines):
    kind = number = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            number = value
        elif name == "data":
            yield kind, number, json.loads(value)


def put(job, seq: int, *texts: str, first: int) -> None:
    lines = [(BEGAN + first + index, text) for index, text in enumerate(texts)]
    apply.apply_batch(identity=identity(job), batch=batch(seq, log_item(0, first, lines)))


def test_lines_are_streamed_as_they_are_written_until_the_job_ends(site, lab, people, tmp_path, settings):
    job = lab.running()
    put(job, 1, "one", "two", first=0)
    token = Token.issue(people.viewer, "stream")[1]
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    with closing(httpx.Client(base_url=site.url, headers=headers, timeout=PATIENCE_SECONDS)) as client:
        with client.stream("GET", f"/api/v1/jobs/{job.pk}/logs/stream") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            found = events(stream.iter_lines())
            kind, cursor, page = next(found)
            assert (kind, [line["text"] for line in page["lines"]]) == ("lines", ["one", "two"])
            put(job, 2, "three", first=2)
            assert [line["text"] for line in next(found)[2]["lines"]] == ["three"]
        with client.stream(
            "GET", f"/api/v1/jobs/{job.pk}/logs/stream", headers={**headers, "Last-Event-ID": cursor}
        ) as stream:
            found = events(stream.iter_lines())
            assert [line["text"] for line in next(found)[2]["lines"]] == ["three"]
            lab.finish(job, 0, 0)
            assert next(found)[0] == "end"
            with pytest.raises(StopIteration):
                next(found)


def test_the_stream_reports_phases_and_the_cursor_of_an_empty_tail(site, lab, people):
    job = lab.running()
    put(job, 1, "long ago", first=0)
    headers = {"Authorization": f"Bearer {Token.issue(people.viewer, 'x')[1]}", "Accept": "text/event-stream"}
    path = f"{site.url}/api/v1/jobs/{job.pk}/logs/stream"
    with httpx.stream("GET", path, params={"tail": 0}, headers=headers, timeout=PATIENCE_SECONDS) as stream:
        found = every_event(stream.iter_lines())
        assert next(found)[2]["phase"] == "running"
        kind, cursor, page = next(found)
        assert (kind, page["lines"]) == ("lines", [])
        lab.finish(job, 0, 0)
        later = list(found)
    assert [data["phase"] for kind, _, data in later if kind == "phase"][-1] == "succeeded"
    assert [kind for kind, *_ in later][-1] == "end"
    put(job, 2, "just now", first=1)
    again = {**headers, "Last-Event-ID": cursor}
    with httpx.stream("GET", path, params={"tail": 0}, headers=again, timeout=PATIENCE_SECONDS) as stream:
        assert [line["text"] for line in next(events(stream.iter_lines()))[2]["lines"]] == ["just now"]


def test_a_stream_is_refused_before_it_starts(site, lab, people):
    job = lab.submit()
    path = f"{site.url}/api/v1/jobs/{job.pk}/logs/stream"

    def status(who: str, **query: str) -> int:
        headers = {"Authorization": f"Bearer {Token.issue(getattr(people, who), 'x')[1]}"} if who else {}
        return httpx.get(
            path, params=query, headers={**headers, "Accept": "text/event-stream"}, timeout=PATIENCE_SECONDS
        ).status_code

    assert status("") == 401
    assert status("stranger") == 404
    assert status("owner", cursor="rubbish") == 400
    assert status("owner", rank="three") == 422


def test_a_download_from_the_real_server_is_complete(site, lab, people):
    job = lab.running()
    put(job, 1, *(f"line {number}" for number in range(3000)), first=0)
    headers = {"Authorization": f"Bearer {Token.issue(people.viewer, 'x')[1]}"}
    text = httpx.get(f"{site.url}/api/v1/jobs/{job.pk}/logs/text", headers=headers, timeout=PATIENCE_SECONDS).text
    assert [line.rpartition("  ")[2] for line in text.splitlines()] == [f"line {number}" for number in range(3000)]


def test_long_reads_of_one_user_take_turns_and_leave_threads_to_others():
    """Six downloads of one viewer used to occupy every thread for streams."""
    gate, inside, most = threading.Event(), [], []

    def read():
        inside.append(1)
        most.append(len(inside))
        assert gate.wait(PATIENCE_SECONDS)
        inside.pop()

    async def story():
        reads = [asyncio.ensure_future(streaming.aside_for(1, read)) for _ in range(12)]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await streaming.aside_for(2, lambda: "read") == "read"
        finally:
            gate.set()
            await asyncio.gather(*reads)

    asyncio.run(story())
    assert len(most) == 12 and max(most) <= streaming.MOST_OF_ONE
    assert not streaming.turns


@pytest.mark.parametrize("path", ["logs/stream", "logs?wait=20"])
@pytest.mark.django_db(transaction=True)
def test_the_number_of_open_streams_and_waits_of_one_user_is_limited(lab, people, client, monkeypatch, path):
    monkeypatch.setattr(hints, "MOST_OPEN", 2)
    job = lab.running()
    token, text = Token.issue(people.viewer, "x")
    signed_in, browser = Client(), AsyncClient()
    signed_in.force_login(people.viewer)
    browser.cookies = signed_in.cookies
    other = Token.issue(people.owner, "x")[1]
    access = Access(people.viewer.pk, frozenset({job.team_id}), token.pk)

    def ask(text):
        headers = {"Authorization": f"Bearer {text}", "Accept": "*/*"}
        return client.get(f"/api/v1/jobs/{job.pk}/{path}", headers=headers)

    async def story():
        streams = [log_stream.events(job.pk, access, {"limit": 1, "cursor": ""}) for _ in range(2)]
        for one in streams:
            await anext(one)
        refused, others = await sync_to_async(ask)(text), await sync_to_async(ask)(other)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        assert "2 of your streams and waits are open" in refused.json()["detail"]
        assert others.status_code == 200
        hints = await browser.get("/live")
        assert (hints.status_code, hints.headers["Retry-After"]) == (429, "5")
        await streams[0].aclose()
        assert (await sync_to_async(ask)(text)).status_code == 200
        await streams[1].aclose()

    asyncio.run(story())
    assert not hints.open_streams
