"""Bodies, addresses and headers have a limit on every route, however they arrive."""

import asyncio

import httpx
import pytest
from django.test import Client

from controlplane import limits
from controlplane.asgi import application

BIG = b"x" * (limits.SMALL + 1)


def over_asgi(method: str, path: str, **sent) -> httpx.Response:
    """Through the whole web process but its socket: the half before Django counts too."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.request(method, path, **sent)

    return asyncio.run(ask())


async def pieces(count: int, size: int = 64 * 1024):
    for _ in range(count):
        yield b"x" * size


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/jobs/1/cancel", "/agent/v1/nothing", "/healthz", "/nowhere"])
def test_a_body_that_is_announced_too_large_is_turned_away(path):
    answer = over_asgi("POST", path, content=BIG)
    assert answer.status_code == 413
    assert str(limits.SMALL) in answer.text
    assert answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/jobs/1/cancel", "/agent/v1/workspace"])
def test_a_body_in_chunks_is_counted_as_it_comes(path):
    answer = over_asgi("POST", path, content=pieces(40))
    assert answer.status_code == 413
    assert "Content-Length" not in answer.request.headers


def test_the_refusal_speaks_the_language_of_its_place():
    program = over_asgi("POST", "/api/v1/jobs", content=BIG)
    assert program.headers["Content-Type"] == "application/problem+json"
    assert program.json()["status"] == 413
    person = over_asgi("POST", "/jobs/1/cancel", content=BIG)
    assert person.headers["Content-Type"].startswith("text/html")
    assert "Too large" in person.text


def test_no_more_than_the_limit_is_taken_in():
    """Counted at the source: the endless sender is not asked for much more than what is allowed."""
    asked = 0

    async def receive():
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 65536, "more_body": True}

    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            pass

    scope = {"type": "http", "path": "/api/v1/jobs", "headers": []}
    asyncio.run(limits.Bounded(app)(scope, receive, None))
    assert scope[limits.MARK] is True
    assert asked == limits.SMALL // 65536 + 1


def test_a_body_within_the_limit_arrives_whole():
    arrived = []

    async def app(scope, receive, send):
        while (message := await receive())["more_body"]:
            arrived.append(message["body"])
        arrived.append(message["body"])

    parts = [b"a" * 1000, b"b" * 1000]

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    scope = {"type": "http", "path": "/api/v1/jobs", "headers": []}
    asyncio.run(limits.Bounded(app)(scope, receive, None))
    assert b"".join(arrived) == b"a" * 1000 + b"b" * 1000
    assert limits.MARK not in scope


@pytest.mark.parametrize(
    ("path", "has_identity", "most"),
    [
        ("/api/v1/jobs", True, limits.SMALL),
        ("/jobs/new", True, 258 * limits.MIB),
        ("/jobs/new", False, limits.SMALL),  # who is nobody fills no disk
        ("/api/v1/workspaces", True, 48 * limits.MIB),
        ("/api/v1/workspaces/missing", True, 48 * limits.MIB),
        ("/api/v1/workspaces/7/files/x.py", True, limits.SMALL),
        ("/agent/v1/workspace", True, 3_200_000),
        ("/agent/v1/workspace", False, limits.SMALL),
        ("/api/v1/workspaces/files", True, 258 * limits.MIB),
        ("/api/v1/workspacesx", True, limits.SMALL),
        ("/agent/v1/batches", True, limits.MAX_BATCH_BYTES),
        ("/login", False, limits.TINY),
        ("/api/v1/login", False, limits.TINY),
        ("/nowhere/jobs/new", True, limits.SMALL),
    ],
)
def test_few_places_take_more(path, has_identity, most):
    assert limits.most_bytes(path, has_identity=has_identity) == most


def test_a_long_address_is_turned_away():
    answer = over_asgi("GET", "/api/v1/jobs?name=" + "x" * limits.ADDRESS_CHARACTERS)
    assert answer.status_code == 414


def test_long_headers_are_turned_away():
    answer = over_asgi("GET", "/login", headers={"X-Long": "x" * limits.HEADER_BYTES})
    assert answer.status_code == 431


@pytest.mark.parametrize("path", ["/login", "/api/v1/jobs", "/nowhere"])
def test_a_long_host_is_turned_away_and_hardly_logged(path, caplog):
    """Redaction took 13 s for one of 16,000 bytes, and everybody waited."""
    answer = over_asgi("GET", path, headers={"Host": "a-" * 8000})
    assert answer.status_code == 400
    assert str(limits.HOST_CHARACTERS) in answer.text
    assert len(caplog.text) < 2000
    allowed = over_asgi("GET", path, headers={"Host": "a" * limits.HOST_CHARACTERS})
    assert str(limits.HOST_CHARACTERS) not in allowed.text


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "FOO"])
def test_an_unknown_method_is_turned_away(method):
    assert over_asgi(method, "/healthz").status_code == 405


def test_a_test_client_without_asgi_meets_the_same_limit(client: Client):
    answer = client.post("/api/v1/jobs", BIG, content_type="application/json")
    assert answer.status_code == 413


@pytest.mark.parametrize("length", ["-1", "1e9", "99999999999999999999999", ""])
def test_a_strange_length_is_no_way_round(length):
    answer = over_asgi("POST", "/api/v1/jobs", content=pieces(40), headers={"Content-Length": length})
    assert answer.status_code == 413
