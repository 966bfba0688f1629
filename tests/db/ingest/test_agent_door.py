"""The endpoint for batches as a web server calls it: checks the token first, then the size, then the content."""

import asyncio
import json
import struct
import threading
import time

import pytest

from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import MAX_BATCH_BYTES
from jobs.ingest import asgi, turns
from jobs.ingest.agent_tokens import issue
from jobs.ingest.asgi import AgentDoor
from jobs.ingest.handler import refused
from jobs.models import LogSegment, Replica
from tests.support.builders import identity, log_item
from tests.support.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("files")]


@pytest.fixture
def job(lab):
    return lab.running()


def body(*items, seq: int = 1) -> bytes:
    header = json.dumps(
        {"version": 1, "seq": seq, "sent_at": 1.0, "items": [dict(one.fields) for one in items]}
    ).encode()
    return struct.pack(">I", len(header)) + header + b"".join(one.blob for one in items)


class Call:
    """One request, sent in pieces, and its answer. `asked` counts the pieces that the endpoint read."""

    def __init__(self, *pieces: bytes, token: str = "", path: str = asgi.PATH, length: int | None = None):
        headers = [(b"authorization", f"Bearer {token}".encode())]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        self.scope = {"type": "http", "path": path, "method": "POST", "headers": headers}
        self.pieces, self.asked, self.sent = list(pieces), 0, []

    async def receive(self):
        self.asked += 1
        piece = self.pieces.pop(0) if self.pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}

    async def send(self, message):
        self.sent.append(message)

    def to(self, door) -> tuple[int, dict]:
        asyncio.run(door(self.scope, self.receive, self.send))
        return self.sent[0]["status"], json.loads(self.sent[1]["body"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}


async def elsewhere(scope, receive, send):
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


@pytest.fixture
def door():
    found = AgentDoor(elsewhere)
    yield found
    found.threads.shutdown()


def test_a_batch_in_pieces_is_applied_and_acknowledged(job, door):
    whole = body(log_item(0, 0, [(1.0, "hello")]))
    status, said = Call(whole[:3], whole[3:20], whole[20:], token=issue(identity(job)), length=len(whole)).to(door)
    assert (status, said["ack"], said["commands"]) == (200, 1, [])
    assert LogSegment.objects.get().lines == 1


def test_a_forged_token_is_refused_before_anything_is_read(job, door):
    token = issue(identity(job))
    call = Call(body(), token=token[:-3] + "abc", length=10)
    assert call.to(door)[0] == 401
    assert call.asked == 0


def test_a_batch_that_is_too_long_is_refused_by_its_declared_and_by_its_actual_size(job, door):
    token = issue(identity(job))
    told = Call(b"x", token=token, length=MAX_BATCH_BYTES + 1)
    assert told.to(door)[0] == 413 and told.asked == 0
    endless = Call(*[b"x" * 2**20] * 20, token=token)
    assert endless.to(door)[0] == 413 and endless.asked <= 10
    assert Replica.objects.get(job=job, index=0).batch_seq == 0


def test_a_batch_that_exceeds_the_buffer_is_refused_with_retry_after(job, door):
    door.waiting_bytes = asgi.MOST_WAITING_BYTES
    call = Call(body(), token=issue(identity(job)), length=100)
    assert call.to(door)[0] == 503
    assert int(call.headers["retry-after"]) >= 1 and call.asked == 0
    door.waiting_bytes = 0
    assert Call(body(), token=issue(identity(job)), length=100).to(door)[0] == 200
    assert door.waiting_bytes == 0


def test_under_load_agents_get_a_slow_command(job, door):
    token = issue(identity(job))
    door.waiting = asgi.BUSY
    assert Call(body(), token=token, length=10).to(door)[1]["commands"] == [
        {"do": "slow", "seconds": asgi.SLOW_SECONDS}
    ]
    door.waiting = 0
    assert Call(body(seq=2), token=token, length=10).to(door)[1]["commands"] == []


def test_one_replica_cannot_block_the_endpoint(job, door, monkeypatch):
    """Whether it sends slowly or many requests at once, other replicas are still served."""
    monkeypatch.setattr(asgi, "BODY_SECONDS", 0.2)

    async def scene():
        slow, again = Call(token=issue(identity(job)), length=MAX_BATCH_BYTES), Call(body(), token=issue(identity(job)))
        slow.receive = asyncio.Event().wait  # never sends anything
        other = Call(body(), token=issue(identity(job, 1)))
        held = asyncio.create_task(door(slow.scope, slow.receive, slow.send))
        await asyncio.sleep(0)
        for call in (again, other):
            await door(call.scope, call.receive, call.send)
        await held
        return [call.sent[0]["status"] for call in (slow, again, other)]

    assert asyncio.run(scene()) == [408, 503, 200]
    assert (door.waiting, door.waiting_bytes, door.inside) == (0, 0, set())


def test_a_client_that_disconnects_leaves_no_state(job, door):
    async def gone():
        return {"type": "http.disconnect"}

    call = Call(token=issue(identity(job)), length=100)
    call.receive = gone
    asyncio.run(door(call.scope, call.receive, call.send))
    assert call.sent == [] and door.inside == set() and Replica.objects.get(job=job, index=0).batch_seq == 0


def test_a_refusal_names_the_field(job, door):
    again = [log_item(0, 0, [(1.0, "the same line")]) for _ in range(2)]
    status, said = Call(body(*again), token=issue(identity(job))).to(door)
    assert (status, said["errors"][0]["field"]) == (400, "log.first_line")


def test_other_paths_are_passed_to_django(door):
    assert Call(path="/jobs", token="x").to(door)[0] == 418


def test_batches_count_against_the_rate_limit_of_their_agent(job, door, settings):
    settings.MUSTER_RATE_AGENT = 2
    tokens = [issue(identity(job, index)) for index in (0, 1)]
    calls = [Call(body(seq=seq), token=tokens[0], length=100) for seq in (1, 2, 3)]
    assert [call.to(door)[0] for call in calls] == [200, 200, 429]
    assert calls[2].asked == 0 and 1 <= int(calls[2].headers["retry-after"]) <= 30
    assert Call(body(), token=tokens[1], length=100).to(door)[0] == 200


def test_a_batch_without_a_content_length_reserves_the_maximum(job, door):
    door.waiting_bytes = asgi.MOST_WAITING_BYTES - MAX_BATCH_BYTES + 1
    assert Call(body(), token=issue(identity(job))).to(door)[0] == 503


class Flood:
    """Agents of two teams at one endpoint. The handler waits for the test, and records the order of the batches."""

    FLOOD, OTHER = 1, 2  # jobs, and their teams

    def __init__(self, door):
        self.door = door
        self.applied: list[AgentIdentity] = []
        self.may_go = threading.Event()

    def answer(self, who: AgentIdentity, body: bytes):
        assert self.may_go.wait(PATIENCE_SECONDS)
        self.applied.append(who)
        return refused(200, "", commands=[])

    def call(self, job: int, index: int, size: int) -> Call:
        return Call(body(), token=issue(AgentIdentity(job, f"{job}-abc", 1, "worker", index)), length=size)


@pytest.fixture
def flood(door, monkeypatch):
    found = Flood(door)
    monkeypatch.setattr(asgi, "answer", found.answer)
    turns.note_team(Flood.FLOOD, 1)
    turns.note_team(Flood.OTHER, 2)
    yield found
    found.may_go.set()


async def _start(flood, calls) -> list[asyncio.Task]:
    """Starts all calls in this order; none of them is applied yet."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(flood.door(call.scope, call.receive, call.send)))
        await asyncio.sleep(0)
    return tasks


def test_the_batch_of_another_team_is_applied_before_the_rest_of_an_earlier_flood(flood):
    many = [flood.call(Flood.FLOOD, index, 1000) for index in range(8)]
    late = flood.call(Flood.OTHER, 0, 1000)

    async def scene():
        tasks = await _start(flood, [*many, late])
        until = time.monotonic() + PATIENCE_SECONDS
        while len(flood.door.turns.waiting) < len(tasks) - asgi.THREADS:
            assert time.monotonic() < until, "they did not come to wait"
            await asyncio.sleep(0)
        flood.may_go.set()
        await asyncio.gather(*tasks)

    asyncio.run(scene())
    assert len(flood.applied) == 9
    # Two were already being applied when it arrived, and the next turn may be the flood's.
    assert [one.job for one in flood.applied].index(Flood.OTHER) <= 4, flood.applied


def test_one_team_cannot_fill_the_buffer_of_waiting_batches(flood):
    many = [flood.call(Flood.FLOOD, index, MAX_BATCH_BYTES) for index in range(8)]
    late = flood.call(Flood.OTHER, 0, MAX_BATCH_BYTES)

    async def scene():
        tasks = await _start(flood, [*many, late])
        flood.may_go.set()
        await asyncio.gather(*tasks)
        return [call.sent[0]["status"] for call in (*many, late)]

    statuses = asyncio.run(scene())
    assert statuses == [200] * 4 + [503] * 4 + [200]
    assert flood.door.waiting_bytes == 0 and not flood.door.bytes_of
