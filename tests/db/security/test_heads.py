"""A request's head is limited in time and size: a connection that never completes one is closed."""

import asyncio
from contextlib import suppress

import pytest
import uvicorn
from uvicorn.server import ServerState

from controlplane.edge import http_protocol
from controlplane.edge.http_protocol import HEAD_BYTES, BoundedHttp
from tests.support.patience import PATIENCE_SECONDS

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answered(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def visit(story, app=answered):
    """Run `story(reader, writer, connections)` against a server; return its result and the statuses of the refusals."""

    async def run():
        config = uvicorn.Config(app, log_level="critical", timeout_keep_alive=int(PATIENCE_SECONDS))
        state, connections, refused = ServerState(), [], []

        class Recorded(BoundedHttp):
            def refuse(self, status):
                refused.append(status[:3])
                super().refuse(status)

        def make():
            connections.append(Recorded(config=config, server_state=state, app_state={}))
            return connections[-1]

        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            return await asyncio.wait_for(story(reader, writer, connections), PATIENCE_SECONDS), refused
        finally:
            writer.close()
            server.close()

    return asyncio.run(run())


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)


async def dripping(reader, writer, begin: bytes, drop: bytes) -> int:
    """Write until the server closes; return how much was sent. A reset may lose the refusal, so it is not read here."""
    writer.write(begin)
    sent, ended = len(begin), asyncio.ensure_future(until_closed(reader))
    while not ended.done():
        writer.write(drop)
        sent += len(drop)
        await asyncio.wait([ended], timeout=0.01)
    return sent


async def until_connected(connections) -> None:
    while not connections:
        await asyncio.sleep(0.01)


async def until_closed(reader) -> None:
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize(
    ("begin", "drop", "refused"),
    [
        (b"GET / HTTP/1.1\r\nX-Slow: ", b"a", [b"408"]),
        (b"GET /", b"a", [b"408"]),
        (b"", b"", []),  # sends nothing at all
        (b"", b"\r\n", []),
        (WHOLE, b"\r\n", []),  # between requests
        (WHOLE + b"GET /", b"a", [b"408"]),
    ],
)
def test_a_slow_head_is_not_waited_for(short, begin, drop, refused):
    assert visit(lambda reader, writer, _: dripping(reader, writer, begin, drop))[1] == refused


def test_a_client_that_waits_receives_the_refusal(short):
    async def story(reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        return await reader.read()

    assert visit(story)[0].startswith(b"HTTP/1.1 408 ")


def test_an_endless_head_is_cut_off():
    sent, refused = visit(
        lambda reader, writer, _: dripping(reader, writer, b"GET / HTTP/1.1\r\nX-Long: ", b"x" * 4096)
    )
    assert refused == [b"431"] and sent > HEAD_BYTES


@pytest.mark.parametrize("before", [b"", WHOLE])
def test_a_head_that_arrives_in_one_piece_is_measured_too(before):
    """A socket delivers up to 256 KiB in one piece, which used not to be counted."""

    async def story(reader, writer, connections):
        writer.write(b"\r\n")  # so that the connection exists
        await until_connected(connections)
        connections[0].data_received(before + b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n")
        await until_closed(reader)

    seen = []

    async def app(scope, receive, send):
        seen.extend(name for name, _ in scope["headers"])
        await answered(scope, receive, send)

    assert visit(story, app)[1] == [b"431"]
    assert b"x-long" not in seen


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


def test_trailers_do_not_become_headers():
    """They arrive after the headers were measured, and used to be added to them."""
    seen = []

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        seen.extend(scope["headers"])
        await answered(scope, lambda: asyncio.sleep(0, {}), send)

    async def story(reader, writer, _):
        writer.write(CHUNKED + b"Content-Type: a/b\r\nAuthorization: Bearer x\r\n\r\n")
        return await reader.readuntil(b"ok")

    assert visit(story, app)[0].startswith(b"HTTP/1.1 200 ")
    assert seen == [(b"host", b"x"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("drop", [b"T: b\r\n" * 500, b"x" * 4096])
def test_endless_trailers_are_cut_off(drop):
    sent, refused = visit(lambda reader, writer, _: dripping(reader, writer, CHUNKED + b"T: ", drop))
    assert refused == [b"431"] and sent > HEAD_BYTES


def test_an_endless_chunk_extension_is_cut_off():
    begin = CHUNKED.removesuffix(b"0\r\n") + b"1;"
    assert visit(lambda reader, writer, _: dripping(reader, writer, begin, b"x" * 4096))[1] == [b"431"]


@pytest.mark.parametrize("how", [b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nf4240\r\n"])
def test_a_body_may_be_longer_than_a_head(how):
    taken = 0

    async def app(scope, receive, send):
        nonlocal taken
        while (message := await receive()).get("more_body"):
            taken += len(message["body"])
        taken += len(message["body"])
        await answered(scope, lambda: asyncio.sleep(0, {}), send)

    async def story(reader, writer, _):
        end = b"\r\n0\r\n\r\n" if b"chunked" in how else b""
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + how + b"x" * 1_000_000 + end + WHOLE)
        return await reader.readuntil(b"ok") + await reader.readuntil(b"ok")

    said, refused = visit(story, app)
    assert said.count(b"200 OK") == 2 and not refused and taken == 1_000_000


def test_the_head_timer_stops_while_a_body_arrives_or_an_answer_is_made():
    """A stream of an hour is a single request."""

    async def story(reader, writer, connections):
        assert all(one.head_timer for one in connections)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\naa")
        await asked.wait()
        assert [one.head_timer for one in connections] == [None]
        writer.write(b"aa" + WHOLE)
        said = await reader.readuntil(b"ok") + await reader.readuntil(b"ok")
        assert [one.head_timer for one in connections] == [None]  # between requests, the timer of uvicorn runs
        return said

    async def app(scope, receive, send):
        asked.set()
        await answered(scope, receive, send)

    asked = asyncio.Event()
    said, refused = visit(story, app)
    assert said.count(b"200 OK") == 2 and not refused
