"""Bodies, URLs and headers are limited on every route, however they arrive."""

import asyncio
import http.cookies
import sys
from io import BytesIO
from ipaddress import ip_network

import httpx
import pytest
from django.core.handlers.asgi import ASGIRequest
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse, multipartparser
from django.test import Client
from django.utils import timezone

from accounts.models import Token
from accounts.roles import Scope
from controlplane import asgi
from controlplane.asgi import application
from controlplane.edge import limits, room
from controlplane.edge.form_input import CarefulRequest
from jobs.ingest import agent_tokens
from tests.support.builders import identity
from tests.support.patience import PATIENCE_SECONDS

BIG = b"x" * (limits.SMALL + 1)


def over_asgi(method: str, path: str, **sent) -> httpx.Response:
    """Through the whole web process except its socket: the layers before Django are included."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.request(method, path, **sent)

    return asyncio.run(ask())


async def pieces(count: int, size: int = 64 * 1024):
    for _ in range(count):
        yield b"x" * size


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/jobs/1/cancel", "/agent/v1/nothing", "/healthz", "/nowhere"])
def test_a_body_that_is_announced_too_large_is_refused(path):
    answer = over_asgi("POST", path, content=BIG)
    assert answer.status_code == 413
    assert str(limits.SMALL) in answer.text
    assert answer.headers["Content-Security-Policy"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("path", "status"), [("/api/v1/jobs", 413), ("/jobs/1/cancel", 401), ("/api/v1/login", 413)])
def test_a_chunked_body_is_measured_as_it_arrives(path, status, people):
    _, text = Token.issue(people.owner, "x")
    answer = over_asgi("POST", path, content=pieces(40), headers={"Authorization": f"Bearer {text}"})
    assert answer.status_code == status
    assert "Content-Length" not in answer.request.headers


def test_the_refusal_is_json_for_the_api_and_html_for_pages():
    program = over_asgi("POST", "/api/v1/jobs", content=BIG)
    assert program.headers["Content-Type"] == "application/problem+json"
    assert program.json()["status"] == 413
    person = over_asgi("POST", "/jobs/1/cancel", content=BIG)
    assert person.headers["Content-Type"].startswith("text/html")
    assert "Too large" in person.text


def test_a_body_within_the_limit_arrives_complete():
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


LARGE = "/api/v1/workspaces/files"
PIECE = 8192


@pytest.fixture
def intake(monkeypatch):
    """`intake(path, headers)`: how much of an endless body the application received, and the status of the refusal.

    `after`: a number of bytes, and a function to call once they have arrived.
    """

    def take(path: str, headers: dict[str, str], *, after=(0, None)) -> tuple[int, int | None]:
        taken = asked = 0

        async def receive():
            nonlocal asked
            asked += PIECE
            return {"type": "http.request", "body": b"x" * PIECE, "more_body": True}

        async def app(scope, receive, send):
            nonlocal taken
            while (message := await receive())["more_body"]:
                taken += len(message["body"])
                if taken == after[0]:
                    await asyncio.to_thread(after[1])

        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "path": path, "headers": raw}
        asyncio.run(limits.Bounded(app)(scope, receive, None))
        assert asked >= taken
        return taken, scope.get(limits.MARK)

    return take


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (LARGE, {}),
        ("/logout", {"Cookie": f"csrftoken={'a' * 32}", "Content-Type": "application/x-www-form-urlencoded"}),
        (LARGE, {"Authorization": "Bearer nobody"}),
        (LARGE, {"Authorization": "Basic bm9ib2R5"}),
        (LARGE, {"Cookie": "sessionid=nobody"}),
        (LARGE, {"Cookie": "theme=dark"}),
        ("/jobs/new", {"Cookie": "sessionid=nobody"}),
        ("/jobs/new", {"Authorization": "Bearer nobody"}),
        ("/agent/v1/workspace", {"Authorization": "Bearer nobody"}),
        ("/api/v1/workspaces", {"Authorization": "Bearer mst_" + "x" * 43}),
    ],
)
def test_little_is_read_from_an_unauthenticated_client(intake, path, headers):
    """The mere presence of the header used to allow 258 MiB on the server's disk for each connection."""
    assert intake(path, headers) == (limits.TINY, 401)
    assert intake(path, {**headers, "Content-Length": str(limits.TINY + 1)}) == (0, 401)


@pytest.mark.django_db(transaction=True)
def test_an_authenticated_client_may_send_the_full_limit(intake, people, as_, lab, settings):
    settings.MUSTER_MAX_WORKSPACE_BYTES = 2 * limits.MIB
    token, text = Token.issue(people.owner, "x")
    browser = as_(people.owner).cookies["sessionid"].value
    agent = agent_tokens.issue(identity(lab.running()))
    whole = limits.most_bytes(LARGE) // PIECE * PIECE
    assert intake(LARGE, {"Authorization": f"Bearer {text}"}) == (whole, 413)
    assert intake(LARGE, {"Cookie": f"sessionid={browser}"}) == (whole, 413)
    assert intake("/jobs/new", {"Cookie": f"sessionid={browser}"}) == (whole, 413)
    assert intake("/agent/v1/workspace", {"Authorization": f"Bearer {agent}"})[0] > limits.SMALL
    Token.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    assert intake(LARGE, {"Authorization": f"Bearer {text}"}) == (limits.TINY, 401)
    people.owner.is_active = False
    people.owner.save()
    assert intake("/jobs/new", {"Cookie": f"sessionid={browser}"}) == (limits.TINY, 401)


@pytest.mark.django_db(transaction=True)
def test_a_large_body_of_a_user_who_may_not_submit_is_refused_early(intake, people, as_, settings):
    """Twelve concurrent requests used to store 40 MiB each before the view answered 403."""
    settings.MUSTER_MAX_WORKSPACE_BYTES = 2 * limits.MIB
    _, viewers = Token.issue(people.viewer, "x")
    _, reading = Token.issue(people.owner, "x", scope=Scope.READ)
    cookie = as_(people.viewer).cookies["sessionid"].value
    for path, headers in (
        (LARGE, {"Authorization": f"Bearer {viewers}"}),
        (LARGE, {"Authorization": f"Bearer {reading}"}),
        ("/api/v1/workspaces/missing", {"Authorization": f"Bearer {viewers}"}),
        ("/jobs/new", {"Cookie": f"sessionid={cookie}"}),
    ):
        assert intake(path, headers) == (limits.SMALL, 403)
        assert intake(path, {**headers, "Content-Length": str(2 * limits.SMALL)}) == (0, 403)
    answer = over_asgi("POST", LARGE, content=BIG, headers={"Authorization": f"Bearer {viewers}"})
    assert answer.status_code == 403 and "no team lets you submit" in answer.json()["detail"]


@pytest.mark.django_db(transaction=True)
def test_revoking_a_token_aborts_the_upload_in_progress(intake, people, monkeypatch):
    monkeypatch.setattr(limits, "CHECK_SECONDS", 0.0)
    token, text = Token.issue(people.owner, "x")

    def revoke():  # runs in its own thread
        Token.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
        connection.close()

    taken, status = intake(LARGE, {"Authorization": f"Bearer {text}"}, after=(2 * limits.SMALL, revoke))
    assert (taken, status) == (2 * limits.SMALL, 401)


@pytest.mark.django_db(transaction=True)
def test_the_unfinished_bodies_of_one_user_are_bounded_together(people, settings):
    """Each is on disk until it is complete; bodies of another user are accepted meanwhile."""
    settings.MUSTER_MAX_WORKSPACE_BYTES = 2 * limits.MIB
    most = limits.FOLDERS_AT_ONCE * limits.most_bytes(LARGE)
    texts = [Token.issue(who, "x")[1] for who in (people.owner, people.owner, people.admin)]
    given: list[int] = []

    async def app(scope, receive, send):
        at = len(given)
        given.append(0)
        while (message := await receive())["more_body"]:
            given[at] += len(message["body"])

    async def send_all(bounded, text, *, pieces, is_left_open):
        left = pieces

        async def receive():
            nonlocal left
            if not left and is_left_open:
                await asyncio.Event().wait()
            left -= 1
            return {"type": "http.request", "body": b"x" * limits.MIB, "more_body": left > 0 or is_left_open}

        headers = [(b"authorization", f"Bearer {text}".encode())]
        scope = {"type": "http", "path": LARGE, "headers": headers}
        await bounded(scope, receive, None)
        return scope.get(limits.MARK)

    async def story():
        bounded = limits.Bounded(app)
        opened = [
            asyncio.create_task(send_all(bounded, texts[at % 2], pieces=3, is_left_open=True))
            for at in range(most // (3 * limits.MIB))
        ]
        while sum(bounded.unfinished.values()) < len(opened) * 3 * limits.MIB:
            await asyncio.sleep(0.01)
        assert await send_all(bounded, texts[0], pieces=3, is_left_open=False) == 429
        assert await send_all(bounded, texts[2], pieces=3, is_left_open=False) is None
        for one in opened:
            one.cancel()
        await asyncio.gather(*opened, return_exceptions=True)
        assert not bounded.unfinished
        assert await send_all(bounded, texts[0], pieces=3, is_left_open=False) is None

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


@pytest.mark.django_db(transaction=True)
def test_a_form_without_files_has_a_small_limit(people, as_):
    """Decoding a MiB of percent signs takes a second of a core."""
    cookie = f"sessionid={as_(people.owner).cookies['sessionid'].value}"
    kind = "application/x-www-form-urlencoded; charset=utf-8"
    long = b"%" * (limits.FORM_BYTES + 1)
    answer = over_asgi("POST", "/jobs/1/cancel", content=long, headers={"Cookie": cookie, "Content-Type": kind})
    assert answer.status_code == 413 and str(limits.FORM_BYTES) in answer.text


@pytest.mark.django_db(transaction=True)
def test_an_unauthenticated_client_gets_the_reason_for_the_refusal():
    sent = {"content": pieces(40), "headers": {"Authorization": "Bearer nobody"}}
    answer = over_asgi("POST", LARGE, **sent)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert answer.headers["Content-Type"] == "application/problem+json" and "valid token" in answer.json()["detail"]


def test_a_slow_body_is_allowed_above_a_minimum_rate():
    assert limits.seconds_left(0, 0) == limits.BODY_SECONDS
    assert limits.seconds_left(0, limits.BODY_SECONDS + 1) == 0
    steady = limits.BODY_BYTES_PER_SECOND
    assert all(limits.seconds_left(steady * second, second) >= limits.BODY_SECONDS for second in range(1, 8000, 7))
    assert limits.seconds_left(steady // 2 * 100, 100) == 0


def test_a_stalled_body_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)

    async def stops():
        yield b"x" * 100
        await asyncio.Event().wait()

    answer = over_asgi("POST", "/api/v1/jobs", content=stops())
    assert answer.status_code == 408
    assert str(limits.BODY_BYTES_PER_SECOND) in answer.json()["detail"]
    assert answer.headers["Connection"] == "close"


FORM = b"application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("path", "kind", "most"),
    [
        ("/api/v1/jobs", b"application/json", limits.SMALL),
        ("/jobs/new", b"multipart/form-data; boundary=x", 258 * limits.MIB),
        ("/jobs/new", FORM, limits.FORM_BYTES),
        ("/api/v1/jobs", b" Application/X-WWW-Form-urlencoded;charset=utf-8", limits.FORM_BYTES),
        ("/api/v1/workspaces", b"", 48 * limits.MIB),
        ("/api/v1/workspaces/missing", b"", 48 * limits.MIB),
        ("/api/v1/workspaces/7/files/x.py", b"", limits.SMALL),
        ("/agent/v1/workspace", b"", 3_200_000),
        ("/api/v1/workspaces/files", b"", 258 * limits.MIB),
        ("/api/v1/workspacesx", b"", limits.SMALL),
        ("/login", FORM, limits.TINY),
        ("/api/v1/login", b"", limits.TINY),
        ("/nowhere/jobs/new", b"", limits.SMALL),
    ],
)
def test_only_few_routes_accept_large_bodies(path, kind, most):
    assert limits.most_bytes(path, kind=kind) == most


def test_a_long_url_is_refused():
    answer = over_asgi("GET", "/api/v1/jobs?name=" + "x" * limits.ADDRESS_CHARACTERS)
    assert answer.status_code == 414


def test_long_headers_are_refused():
    answer = over_asgi("GET", "/login", headers={"X-Long": "x" * limits.HEADER_BYTES})
    assert answer.status_code == 431


@pytest.mark.parametrize("path", ["/login", "/api/v1/jobs", "/agent/v1/batches"])
def test_a_content_length_of_thousands_of_digits_is_refused(path):
    """The number 5 with leading zeros: more digits than Python converts to a number."""
    answer = over_asgi("POST", path, content=b"abcde", headers={"Content-Length": "0" * 4999 + "5"})
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/jobs", "/nowhere"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("text/plain; charset*=foo''bar", "cannot be read"),
        ("a/b; x*0=a; x*=b", "cannot be read"),
        ("multipart/form-data; boundary=x; charset=unicode_escape", "send UTF-8"),
        ("application/x-www-form-urlencoded; charset=rot13", "send UTF-8"),
        ("multipart/form-data; boundary=x; charset=IDNA", "send UTF-8"),
    ],
    ids=range(5),
)
def test_an_unreadable_content_type_is_refused(path, kind, words):
    answer = over_asgi("POST", path, headers={"Content-Type": kind}, content=b"x=1")
    assert answer.status_code == 400
    assert words in answer.text


@pytest.mark.parametrize("second", ["; charset*=foo''bar", "b; x*=b", '"; charset=rot13'])
def test_two_content_types_are_refused(second):
    answer = over_asgi("POST", "/healthz", headers=[("Content-Type", 'text/plain; a="'), ("Content-Type", second)])
    assert answer.status_code == 400 and "several Content-Type headers" in answer.text


@pytest.mark.parametrize("value", ["application/json; a*0=b; a*=c", "text/html, a/b; x*=rot13''q", "a/b; q=0.5; *"])
def test_an_accept_header_that_drf_cannot_parse_is_refused(value):
    answer = over_asgi("GET", "/api/v1/me", headers={"Accept": value})
    assert answer.status_code == 400 and "the Accept header cannot be read" in answer.text
    assert (
        over_asgi("GET", "/api/v1/me", headers={"Accept": "text/html, application/*;q=0.9, */*; q=0.8"}).status_code
        == 401
    )


def multipart(*parts: str) -> bytes:
    return "".join(f"--x\r\n{part}\r\n\r\n\r\n" for part in parts).encode() + b"--x--\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        ['Content-Disposition: form-data; name="a' + ";" * 900],
        ['Content-Disposition: form-data; filename="a' + ";" * 900],
        ["X: a;" + "b;" * 40],
        ["\r\n".join(["X: y"] * 9)],
        ['Content-Disposition: form-data; filename="a"'] * 2000,
        ["X: y; z"] * 2000,
    ],
)
@pytest.mark.django_db(transaction=True)
def test_the_parts_of_a_form_are_counted_before_their_heads_are_parsed(parts, monkeypatch, people, as_):
    """A MiB of parts took a second of a core, and a member may send 258 MiB."""
    taken_apart = []
    real = multipartparser.parse_header_parameters
    monkeypatch.setattr(multipartparser, "parse_header_parameters", lambda line: taken_apart.append(line) or real(line))
    cookie = f"csrftoken={'a' * 32}; sessionid={as_(people.owner).cookies['sessionid'].value}"
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Cookie": cookie}
    answer = over_asgi("POST", "/logout", content=multipart(*parts), headers=headers)
    assert answer.status_code == 400
    assert len(list(filter(None, taken_apart))) <= 1103 and not any(line.count(";") > 32 for line in taken_apart)


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize("head", ['name="a"; filename*0=a; filename*=b', 'name="a"; x*0=a; x*=b'])
def test_an_unreadable_part_of_a_form_is_refused(path, head):
    content = f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\nv\r\n--x--\r\n".encode()
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Cookie": f"csrftoken={'a' * 32}"}
    assert over_asgi("POST", path, headers=headers, content=content).status_code == 400


def test_ordinary_content_types_are_accepted():
    for kind in (
        "application/json",
        "application/json; charset=UTF-8",
        "multipart/form-data; boundary=x; charset=utf-8",
        "",
    ):
        assert limits.type_complaint([(b"content-type", kind.encode())]) == ""


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([("Content-Type", 'a/b; x="' + ";" * 1000)], "Content-Type header has at most 256 bytes"),
        ([("Content-Type", 'a/b; x="' + ";" * 200), ("Content-Type", ";" * 200)], "Content-Type"),
        ([("Accept", 'a/b; x="' + ";" * 2000)], "Accept header has at most 1024 bytes"),
        ([("Accept", "a/b, " * 100), ("Accept", "c/d, " * 200)], "Accept"),
        ([("Content-Type", "a/b"), ("X-Long", "x" * limits.HEADER_BYTES)], f"{limits.HEADER_BYTES} bytes together"),
        ([(f"X-{number}", "x" * 100) for number in range(400)], f"{limits.HEADER_BYTES} bytes together"),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/jobs", "/nowhere"])
def test_headers_are_measured_before_django_parses_them(path, headers, words, monkeypatch):
    """62 KB of Content-Type took 2.3 s and blocked all requests, because Django parses it in the event loop."""
    taken_apart = []

    class Seen(ASGIRequest):
        def __init__(self, scope, *rest):
            taken_apart.append(sum(len(name) + len(value) for name, value in scope["headers"]))
            super().__init__(scope, *rest)

    monkeypatch.setattr(asgi.django_pages, "request_class", Seen)
    answer = over_asgi("POST", path, headers=headers, content=b"x" * 100)
    assert answer.status_code == 431 and words in answer.text
    assert answer.headers["Connection"] == "close" and answer.headers["Content-Security-Policy"]
    assert len(taken_apart) == 1 and taken_apart[0] < 100


OURS = {"sessionid": "a" * 32, "csrftoken": "b" * 32}


@pytest.mark.parametrize(
    "cookie",
    [
        "sessionid={sessionid}; csrftoken={csrftoken}",
        "theme=dark;sessionid={sessionid};a=b=c;;csrftoken={csrftoken};",
        'quoted="' + '\\"' * 5000 + '"; sessionid={sessionid}; csrftoken={csrftoken}',
        'csrftoken={csrftoken}; sessionid={sessionid}; sessionid="' + '\\"' * 5000 + '"',
        "a; b; sessionid ={sessionid}; csrftoken={csrftoken}; session=x; xsessionid=y",
    ],
    ids=range(5),
)
def test_only_our_own_cookies_reach_django(cookie, monkeypatch):
    """31 KB of quoted backslashes took 1.2 s; and cookies of other applications must not lock users out."""
    found, parsed = [], []
    whole = http.cookies._unquote
    monkeypatch.setattr(http.cookies, "_unquote", lambda text: parsed.append(text) or whole(text))

    def noted(self, request):
        found.append(request.COOKIES)

    monkeypatch.setattr(limits.Limits, "__call__", lambda self, request: noted(self, request) or HttpResponse())
    assert over_asgi("GET", "/login", headers={"Cookie": cookie.format(**OURS)}).status_code == 200
    assert found == [OURS] and sorted(parsed) == sorted(OURS.values())


@pytest.mark.django_db(transaction=True)
def test_a_session_is_valid_among_other_cookies(intake, people, as_):
    browser = as_(people.owner).cookies["sessionid"].value
    hostile = 'a="' + '\\"' * 5000 + '"'
    taken, _ = intake(LARGE, {"Cookie": f"{hostile}; sessionid={browser}"})
    assert taken > limits.SMALL


def test_headers_of_ordinary_programs_and_browsers_are_short_enough():
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
    form = "multipart/form-data; boundary=" + "-" * 70
    others = "; ".join(f"other-application-{number}={'x' * 1000}" for number in range(25))
    answer = over_asgi("GET", "/healthz", headers={"Accept": browser, "Content-Type": form, "Cookie": others})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/login", "/api/v1/jobs", "/nowhere"])
def test_a_long_host_header_is_refused_with_a_short_log_line(path, caplog):
    """Redacting a host of 16,000 bytes took 13 s, and blocked all requests."""
    answer = over_asgi("GET", path, headers={"Host": "a-" * 8000})
    assert answer.status_code == 400
    assert str(limits.HOST_CHARACTERS) in answer.text
    assert len(caplog.text) < 2000
    allowed = over_asgi("GET", path, headers={"Host": "a" * limits.HOST_CHARACTERS})
    assert str(limits.HOST_CHARACTERS) not in allowed.text


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "FOO"])
def test_an_unknown_method_is_refused(method):
    assert over_asgi(method, "/healthz").status_code == 405


def test_the_limit_also_applies_without_asgi(client: Client):
    answer = client.post("/api/v1/jobs", BIG, content_type="application/json")
    assert answer.status_code == 413


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("length", ["-1", "1e9", "99999999999999999999999", ""])
def test_a_malformed_content_length_does_not_evade_the_limit(length, people):
    headers = {"Content-Length": length, "Authorization": f"Bearer {Token.issue(people.owner, 'x')[1]}"}
    answer = over_asgi("POST", "/api/v1/jobs", content=pieces(40), headers=headers)
    assert answer.status_code == 413


def test_the_thread_switch_interval_is_short():
    """It delays a request at each hop between threads; with Python's 5 ms, pages waited for one viewer's downloads."""
    assert application is not None  # importing it sets the interval
    assert sys.getswitchinterval() == pytest.approx(0.001)


class Inside:
    """An application behind `Bounded` that answers when the test says so, and counts the requests inside."""

    def __init__(self, *known: str):
        """`known`: tokens that were authenticated before. The first letter identifies the user."""
        self.may_answer = asyncio.Event()
        self.paths, self.most, self.now = [], 0, 0
        self.bounded = limits.Bounded(self)
        for token in known:
            scope = {"path": "/api/x", "headers": [(b"authorization", f"Bearer {token}".encode())]}
            self.bounded.room.known.add(room.shown(scope), user=ord(token[0]))

    async def __call__(self, scope, receive, send):
        while (await receive())["more_body"]:
            pass
        self.now += 1
        self.most = max(self.most, self.now)
        self.paths.append(scope["path"])
        await self.may_answer.wait()
        self.now -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(
        self, path="/api/x", *, token="a", receive=None, client="192.0.2.1"
    ) -> tuple[int, dict[bytes, bytes]]:
        async def whole():
            return {"type": "http.request", "body": b"", "more_body": False}

        said = []

        async def send(message):
            said.append(message)

        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        scope = {"type": "http", "path": path, "headers": headers, "client": (client, 1)}
        await self.bounded(scope, receive or whole, send)
        return said[0]["status"], dict(said[0]["headers"])


async def settled(inside):
    """Run the event loop until every request is inside or waiting."""
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("token", "most"), [("a", room.MOST_AT_ONCE), ("", room.MOST_OF_ADDRESS)])
def test_requests_of_one_sender_queue_without_delaying_others(token, most):
    """300 waiting requests of one viewer took a thread each, until the process could start no more."""

    async def story():
        inside = Inside("a", "b")
        flood = [asyncio.ensure_future(inside.ask(token=token)) for _ in range(100)]
        await settled(inside)
        assert inside.now == most
        others = [
            asyncio.ensure_future(inside.ask("/api/other", token="b")),
            asyncio.ensure_future(inside.ask("/healthz")),
        ]
        await settled(inside)
        assert inside.paths[-2:] == ["/api/other", "/healthz"]
        inside.may_answer.set()
        return await asyncio.gather(*flood, *others), inside

    answers, inside = asyncio.run(story())
    assert [status for status, _ in answers] == [200] * 102
    assert inside.most == most + 2
    assert inside.bounded.room.taken == 0 and not inside.bounded.room.turns


def test_a_request_is_identified_by_its_token_or_session_and_its_address(settings):
    def scope(*headers, client=("192.0.2.1", 1), path="/api/v1/jobs"):
        return {"headers": list(headers), "client": client, "path": path}

    def shown(*headers, **where):
        return room.shown(scope(*headers, **where))

    cookie = settings.SESSION_COOKIE_NAME.encode()
    token, session = (b"authorization", b"Bearer a"), (b"cookie", cookie + b"=b")
    assert len({shown(token), shown((b"authorization", b"Bearer b")), shown(session), b""}) == 4
    # A client cannot become another sender by varying parts that authentication ignores.
    assert {shown((b"authorization", one)) for one in (b"Bearer  a", b" bearer a", b"bEaReR\ta ")} == {shown(token)}
    assert (
        shown((b"authorization", b"Basic x"), session) == shown((b"authorization", b"mst_x"), session) == shown(session)
    )
    pages = [cookie + b"=b; csrftoken=1", b"csrftoken=2;  " + cookie + b'="b"', cookie + b"=other; " + cookie + b"=b"]
    assert {shown((b"cookie", one), token, path="/jobs") for one in pages} == {shown(session)}
    assert (
        {shown(token, session, path=path) for path in room.SIGN_INS} == {b""} == {shown(), shown(token, path="/jobs")}
    )
    forwarded = scope((b"x-forwarded-for", b"192.0.2.7"))
    assert room.address(forwarded) == room.address(scope())  # any client may send this header
    settings.TRUSTED_PROXIES = [ip_network("192.0.2.1")]
    assert room.address(forwarded) != room.address(scope())
    assert room.address(scope(client=None)) == b""


def test_unknown_credentials_count_for_their_address():
    """A client could put a new session into each request, and each counted as a separate sender."""

    async def story():
        inside = Inside("known")
        strangers = [asyncio.ensure_future(inside.ask(token=str(number))) for number in range(100)]
        await settled(inside)
        assert inside.now == room.MOST_OF_ADDRESS
        others = [inside.ask("/api/other", token="known"), inside.ask("/api/else", token="new", client="192.0.2.2")]
        others = [asyncio.ensure_future(one) for one in others]
        await settled(inside)
        assert set(inside.paths[-2:]) == {"/api/other", "/api/else"}
        inside.may_answer.set()
        await asyncio.gather(*strangers, *others)
        return inside.bounded.room

    left = asyncio.run(story())
    assert (left.taken, left.unknown, len(left.turns)) == (0, 0, 0)
    assert len(left.known.users) == 1  # the strangers were not authenticated


def test_unknown_senders_of_many_addresses_leave_room_for_known_ones():
    async def story():
        inside = Inside("known")
        asked = (inside.ask(client=f"192.0.2.{number}") for number in range(200))
        strangers = [asyncio.ensure_future(one) for one in asked]
        await settled(inside)
        assert inside.now == room.MOST_UNKNOWN
        known = asyncio.ensure_future(inside.ask(token="known"))
        await settled(inside)
        assert inside.now == room.MOST_UNKNOWN + 1
        inside.may_answer.set()
        return [status for status, _ in await asyncio.gather(*strangers, known)]

    answers = asyncio.run(story())
    assert answers.count(503) == 200 - room.MOST_UNKNOWN and answers[-1] == 200


def test_a_request_behind_a_flood_of_its_address_is_refused_with_retry_after():
    async def story():
        inside = Inside()
        flood = [asyncio.ensure_future(inside.ask()) for _ in range(1000)]
        await settled(inside)
        status, headers = await inside.ask()
        assert (status, headers[b"retry-after"]) == (503, b"2")
        inside.may_answer.set()
        return [status for status, _ in await asyncio.gather(*flood)], inside.bounded.room

    answers, left = asyncio.run(story())
    assert answers.count(200) == room.MOST_WAITING + room.MOST_OF_ADDRESS
    assert not left.waiting and not left.turns


def test_an_agent_is_identified_by_its_signature(lab):
    token = agent_tokens.issue(identity(lab.running()))

    async def story():
        inside = Inside()
        asked = [inside.ask(token=token if number % 2 else "x", path="/agent/v1/workspace") for number in range(100)]
        asked = [asyncio.ensure_future(one) for one in asked]
        await settled(inside)
        assert inside.now == room.MOST_AT_ONCE + room.MOST_OF_ADDRESS
        inside.may_answer.set()
        await asyncio.gather(*asked)

    asyncio.run(story())


def test_all_tokens_of_one_user_count_as_one_sender():
    async def story():
        inside = Inside(*(f"a{number}" for number in range(40)), "b")
        flood = [asyncio.ensure_future(inside.ask(token=f"a{number}")) for number in range(40)]
        await settled(inside)
        assert inside.now == room.MOST_AT_ONCE
        other = asyncio.ensure_future(inside.ask("/api/other", token="b"))
        await settled(inside)
        assert inside.paths[-1] == "/api/other"
        inside.may_answer.set()
        await asyncio.gather(*flood, other)

    asyncio.run(story())


@pytest.mark.django_db
def test_the_token_of_an_agent_is_one_sender_however_it_is_written(lab):
    token = agent_tokens.issue(identity(lab.running()))
    said = (f"Bearer {token}", f" bearer  {token} \t")
    scopes = [{"path": "/agent/v1/x", "headers": [(b"authorization", one.encode())]} for one in said]
    assert len({room.agent_sender(one) for one in scopes}) == 1 and room.agent_sender(scopes[0])
    assert agent_tokens.bearer(f"Bearer {token}\xa0") is None is agent_tokens.bearer(f"Bearer \x85{token}")


def test_a_token_or_session_stays_known_for_a_limited_time():
    now = [0.0]
    known = room.RecentUsers(lambda: now[0])
    known.add(b"a", 7)
    assert known.sender(b"a") == b"user 7" and not known.sender(b"b")
    now[0] = room.KNOWN_SECONDS + 1
    assert not known.sender(b"a")
    for number in range(room.MOST_KNOWN + 5):
        known.add(b"%d" % number, 7)
    assert len(known.users) == room.MOST_KNOWN and not known.sender(b"3") and known.sender(b"5")


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/api/v1/me", "/jobs"])
def test_a_sender_is_known_once_django_has_authenticated_it(people, settings, path):
    client = Client()
    client.force_login(people.owner)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    token = Token.issue(people.owner, "test")[1]
    said = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"}
    if path.startswith("/api"):
        said = {"Authorization": f"Bearer {token}"}

    def let_in(headers: dict[str, str]) -> int | None:
        request = CarefulRequest(
            {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}, BytesIO()
        )
        request.META |= {f"HTTP_{name.upper()}": value for name, value in headers.items()} | {"HTTP_HOST": "testserver"}
        get_wsgi_application().get_response(request)
        return request.scope.get(room.LET_IN)

    assert let_in(said) == people.owner.pk
    assert let_in({name: value[:-3] + "xyz" for name, value in said.items()}) is None
    assert let_in({}) is None


def test_no_more_requests_are_admitted_than_there_are_threads(monkeypatch):
    monkeypatch.setattr(room, "MOST_INSIDE", 3)

    async def story():
        inside = Inside()
        first = [asyncio.ensure_future(inside.ask(token=str(number))) for number in range(3)]
        await settled(inside)
        status, headers = await inside.ask(token="4")
        assert (status, headers[b"retry-after"]) == (503, b"2")
        inside.may_answer.set()
        await asyncio.gather(*first)
        return await inside.ask(token="4")

    assert asyncio.run(story())[0] == 200


def test_an_incomplete_body_takes_no_slot():
    async def story():
        inside = Inside()
        inside.may_answer.set()
        never = asyncio.Event()

        async def slow():
            await never.wait()

        waiting = [asyncio.ensure_future(inside.ask(receive=slow)) for _ in range(2 * room.MOST_OF_ADDRESS)]
        await settled(inside)
        answer = await inside.ask()
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return answer

    assert asyncio.run(story())[0] == 200


def test_a_stream_takes_a_slot_only_until_its_head_is_sent():
    async def story():
        over = asyncio.Event()

        async def stream(scope, receive, send):
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await over.wait()

        inside = Inside()
        inside.bounded.app = stream
        streams = [asyncio.ensure_future(inside.ask()) for _ in range(2 * room.MOST_OF_ADDRESS)]
        await settled(inside)
        assert inside.bounded.room.taken == 0
        over.set()
        return await asyncio.gather(*streams)

    assert {status for status, _ in asyncio.run(story())} == {200}


class Unread:
    """An application whose large answers are not read until the test says so; counts the requests that began."""

    def __init__(self, length: int):
        async def app(scope, receive, send):
            await receive()
            self.begun += 1
            head = [(b"Content-Length", b"%d" % length)]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": b""})

        self.begun = 0
        self.is_read = asyncio.Event()
        self.bounded = limits.Bounded(app)

    async def ask(self):
        async def whole():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            if message["type"] == "http.response.body":
                await self.is_read.wait()

        scope = {"type": "http", "path": "/api/x", "headers": [], "client": ("192.0.2.1", 1)}
        await self.bounded(scope, whole, send)


@pytest.mark.parametrize(("length", "begun"), [(room.SMALL_BYTES, 40), (room.SMALL_BYTES + 1, room.MOST_OF_ADDRESS)])
def test_large_unread_answers_keep_their_slots(length, begun):
    """120 connections of a viewer that read nothing held a file of 8 MiB each in memory."""

    async def story():
        unread = Unread(length)
        asked = [asyncio.ensure_future(unread.ask()) for _ in range(40)]
        await settled(unread)
        first = unread.begun
        unread.is_read.set()
        await asyncio.gather(*asked)
        return first, unread.begun, unread.bounded.room.taken

    assert asyncio.run(story()) == (begun, 40, 0)


def test_a_large_answer_that_is_not_read_is_aborted(monkeypatch):
    monkeypatch.setattr(room, "SEND_SECONDS", 0.01)

    async def story():
        unread = Unread(room.SMALL_BYTES + 1)
        await unread.ask()
        return unread.bounded.room.taken

    assert asyncio.run(story()) == 0
