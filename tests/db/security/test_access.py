"""Every route of the URL map with every method and every kind of client. The table is in routes.py."""

import re
import zlib
from collections.abc import Iterable, Iterator

import pytest
from django.core import signing
from django.db import connection, transaction
from django.test import Client
from django.test.client import ClientHandler
from django.utils import timezone

from accounts.models import Team, User
from common.limits.rates import Buckets
from controlplane.edge import rates
from jobs.ingest import agent_tokens
from tests.db.security.routes import (
    AGENT,
    API,
    MANAGING,
    METHODS,
    NOBODY,
    NODES,
    OPEN,
    PAGE,
    PERSONS,
    PLATFORM,
    PODS,
    READING,
    SECRET,
    STREAM,
    SUBMITTERS,
    SUBMITTING,
    TABLE,
    UNBOUND,
    AccessFixture,
    address,
    body,
    patterns,
)
from tests.support import packs
from tests.support.builders import deliver, identity

EMPTY_BATCH = (lambda head: len(head).to_bytes(4, "big") + head)(b'{"version":1,"seq":1,"sent_at":1.0,"items":[]}')

SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
WRITES = re.compile(r'(INSERT INTO|UPDATE|DELETE FROM) (?!"accounts_token" SET "last_used_at")')
# Writes that a refused request must not make. It may record when its token was last used.
CHANGES = re.compile(
    r'(INSERT INTO|UPDATE|DELETE FROM) "(jobs_\w+|queues_\w+|workspaces_\w+|accounts_(membership|team|user|token))" '
)


@pytest.fixture
def world(lab, people, settings, tmp_path) -> AccessFixture:
    settings.MEDIA_ROOT = tmp_path
    return AccessFixture(lab, people)


def test_the_table_lists_exactly_the_routes_of_the_url_map():
    resolved = {pattern for pattern, one in TABLE.items() if one.is_resolved}
    assert set(patterns()) - resolved == set(), "new routes: say in tests/db/security/routes.py who may use them"
    assert resolved - set(patterns()) == set(), "these routes are gone"


class Everybody:
    """One client per person and kind of credentials, made once because making them takes longer than the requests."""

    def __init__(self, world: AccessFixture):
        people = world.persons
        self.sessions = {person: session(people[person]) for person in PERSONS}
        self.tokens = {person: bearer(world.token(people[person])) for person in PERSONS}
        self.agents = agents(world)
        self.less = {
            (person, scope): bearer(world.token(people[person], scope))
            for person in ("admin", "member", "stranger", "root")
            for scope in (READING, SUBMITTING)
        }
        self.elsewhere = bearer(world.token(people["root"], team=Team.objects.get(name="vision")))
        self.nobodies = nobodies(world)
        handler = ClientHandler(enforce_csrf_checks=False)  # all clients share one middleware chain
        for client in self:
            client.handler = handler

    def __iter__(self) -> Iterator[Client]:
        for some in (self.sessions, self.tokens, self.agents, self.less, self.nobodies):
            yield from some.values()
        yield self.elsewhere


def nobodies(world: AccessFixture) -> dict[str, Client]:
    """Clients whose credentials are invalid, or valid only elsewhere."""
    member = world.persons["member"]
    past = timezone.now()
    tokens = {
        "expired token": world.token(member, expires_at=past),
        "revoked token": world.token(member, revoked_at=past),
        "token of somebody switched off": world.token(world.gone),
        "forged token": world.token(member)[:-1] + "!",
        "token under another scheme": "",
        "forged token of an agent": _turned(agent_tokens.issue(identity(world.job))),
        "agent's token signed for something else": signing.dumps(
            [world.job.pk, world.job.run, 1, "worker", 0], salt="x"
        ),
        "agent's token signed with another key": signing.dumps([1, "x", 1, "worker", 0], salt="muster.agent", key="k"),
    }
    found = {name: bearer(text) for name, text in tokens.items()}
    found["token under another scheme"] = Client(headers={"Authorization": f"Token {world.token(member)}"})
    found["anonymous"] = Client()
    found["session of somebody switched off"] = session(world.gone)
    User.objects.filter(pk=world.gone.pk).update(is_active=False)
    return found


def _turned(text: str) -> str:
    """The same claims with one letter changed."""
    return text[:4] + ("A" if text[4] != "A" else "B") + text[5:]


def bearer(text: str) -> Client:
    return Client(headers={"Authorization": f"Bearer {text}"})


def session(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def agents(world: AccessFixture) -> dict[str, Client]:
    return {
        "agent of this job": bearer(agent_tokens.issue(identity(world.job))),
        "agent of another job": bearer(agent_tokens.issue(identity(world.theirs))),
    }


class Asking:
    """Requests within one savepoint, to which it returns after each request that wrote: most are refused and write nothing."""

    def __init__(self, world: AccessFixture):
        self.world = world
        self._savepoint = transaction.savepoint()

    def ask(self, client: Client, method: str, pattern: str) -> tuple[int, str, str]:
        """Return (status, redirect target, text). A refused request must not have changed anything, nor a safe one."""
        kept, written = client.cookies.output(header=""), []

        def note(execute, sql, params, many, context):
            if WRITES.match(sql):
                written.append(sql)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(note):
            answer = client.generic(
                method, address(pattern, self.world), body(pattern, self.world), TABLE[pattern].kind
            )
            is_stream = answer.headers.get("Content-Type", "").startswith("text/event-stream")
            text = "" if is_stream else b"".join(answer).decode(errors="replace")
        if written or connection.needs_rollback:
            transaction.savepoint_rollback(self._savepoint)
            transaction.set_rollback(False)
        client.cookies.clear()
        client.cookies.load(kept)
        changes = [sql for sql in written if CHANGES.match(sql)]
        assert not changes or (answer.status_code < 400 and method not in SAFE), (
            method, pattern, answer.status_code, changes,
        )  # fmt: skip
        return answer.status_code, answer.headers.get("Location", ""), text


def expected(pattern: str, method: str, person: str | None, scope: str = MANAGING) -> int:
    """The status of the refusal, or 0 if the client is let in."""
    one = TABLE[pattern]
    if method == "TRACE":
        return 405
    if person is None:
        return 405 if one.door in (AGENT, STREAM) and method not in one.rules else NOBODY[one.door]
    return one.rules[method].answer(person, scope) if method in one.rules else 405


def verify(
    asking: Asking,
    pattern: str,
    client: Client,
    who: str,
    person: str | None,
    scope: str = MANAGING,
    methods: Iterable[str] = METHODS,
) -> None:
    for method in methods:
        status, leads_to, said = asking.ask(client, method, pattern)
        wanted = expected(pattern, method, person, scope)
        if wanted == 302:
            assert (status, leads_to.startswith("/login?next=")) == (302, True), (who, method, pattern, status)
        elif wanted in (409, 422) and scope != MANAGING:  # depends on which check comes first
            assert status in (403, wanted), (who, method, pattern, status, said[:300])
        elif wanted:
            assert status == wanted, (who, method, pattern, status, said[:300])
        else:
            assert status < 400 and not leads_to.startswith("/login?"), (who, method, pattern, status, said[:300])
        if person in (None, "stranger"):
            assert SECRET not in said, f"{who} reads what is not theirs: {method} {pattern}"


@pytest.mark.ci
@pytest.mark.parametrize("door", sorted({one.door for one in TABLE.values()}))
def test_every_client_on_every_route(world, door, monkeypatch):
    """One set of objects per door, because making it takes longer than the requests; every change is rolled back."""
    everybody, asking = Everybody(world), Asking(world)
    for pattern in sorted(pattern for pattern, one in TABLE.items() if one.door == door):
        monkeypatch.setattr(rates, "buckets", Buckets(clock=lambda: 0.0))
        people_with_a_session(asking, pattern, everybody)
        people_with_a_token(asking, pattern, everybody)
        agents_of_jobs(asking, pattern, everybody)
        if door == API:
            tokens_of_less_scope(asking, pattern, everybody)
            tokens_for_another_team(asking, pattern, everybody)
        nobody(asking, pattern, everybody)


def methods(pattern: str, person: str = "") -> Iterable[str]:
    """A method that the route lacks is refused before anybody's rights are asked, and HEAD is answered by the view of GET,
    asked by the same door: only some clients try them."""
    if person in ("member", "anonymous"):
        return METHODS
    return [one for one in TABLE[pattern].rules if one != "HEAD" or person == "stranger"]


def people_with_a_session(asking: Asking, pattern: str, everybody: Everybody) -> None:
    door = TABLE[pattern].door
    for person, client in everybody.sessions.items():
        someone = None if door == AGENT else person
        verify(asking, pattern, client, f"{person} with a session", someone, methods=methods(pattern, person))


def people_with_a_token(asking: Asking, pattern: str, everybody: Everybody) -> None:
    """A token is valid for the API, but not for pages, streams of a browser, or routes of agents."""
    is_open = TABLE[pattern].door in (API, OPEN)
    for person, client in everybody.tokens.items():
        someone = person if is_open else None
        verify(asking, pattern, client, f"{person} with a token", someone, methods=methods(pattern, person))


def agents_of_jobs(asking: Asking, pattern: str, everybody: Everybody) -> None:
    """The token of an agent is valid only for routes of agents."""
    door = TABLE[pattern].door
    for who, client in everybody.agents.items():
        person = "member" if door == AGENT and "this" in who else "stranger" if door in (AGENT, OPEN) else None
        verify(asking, pattern, client, who, person, methods=METHODS if door == AGENT else methods(pattern))


def tokens_of_less_scope(asking: Asking, pattern: str, everybody: Everybody) -> None:
    """The rights of the person, limited by the scope of the token. Methods that the route lacks are not tried."""
    for (person, scope), client in everybody.less.items():
        verify(asking, pattern, client, f"{person} with a token to {scope}", person, scope, methods(pattern))


def tokens_for_another_team(asking: Asking, pattern: str, everybody: Everybody) -> None:
    """A platform administrator's token for another team gives no access to ours."""
    for method in methods(pattern):
        status, _, said = asking.ask(everybody.elsewhere, method, pattern)
        assert SECRET not in said, (method, pattern)
        if "{" in pattern:  # what belongs to no team is not hidden from its administrators' narrower tokens
            rule = TABLE[pattern].rules.get(method)
            expected = 403 if rule in (PLATFORM, NODES, PODS, UNBOUND) else 200 if rule is SUBMITTERS else 404
            assert status == expected, (method, pattern, status)


def nobody(asking: Asking, pattern: str, everybody: Everybody) -> None:
    """Anonymous clients try every method; clients with invalid credentials only the methods of the route."""
    for who, client in everybody.nobodies.items():
        person = "stranger" if TABLE[pattern].door == OPEN else None
        verify(asking, pattern, client, who, person, methods=methods(pattern, who))


def test_a_bulk_action_is_refused_per_job(world):
    before = world.state()
    for person, status in (("viewer", 403), ("stranger", 404)):
        client = session(world.persons[person])
        sent = {"act": "cancel", "ids": [world.job.pk]}
        answer = client.post("/api/v1/jobs/bulk", sent, content_type="application/json").json()
        assert [one["status"] for one in answer["results"]] == [status], (person, answer)
    assert world.state() == before


def test_an_agent_gets_the_code_of_its_own_job_and_no_other(world):
    ours, theirs = (zlib.decompress(client.get("/agent/v1/workspace").getvalue()) for client in agents(world).values())
    assert SECRET in ours.decode() and SECRET not in theirs.decode()
    assert "theirs.py" in theirs.decode()
    named = bytes.fromhex(packs.sha(b"ours " + SECRET.encode()))
    mine, other = agents(world).values()
    assert mine.post("/agent/v1/workspace", named, content_type="application/octet-stream").status_code == 200
    assert other.post("/agent/v1/workspace", named, content_type="application/octet-stream").status_code == 404


def test_an_agent_of_another_job_changes_nothing_of_ours(world):
    before = world.state(), list(world.job.replicas.values())
    assert deliver(agent_tokens.issue(identity(world.theirs)), EMPTY_BATCH).status == 200
    assert (world.state(), list(world.job.replicas.values())) == before


def test_batches_are_accepted_only_from_agents(world):
    """They bypass Django (jobs/ingest/asgi.py), so the table has no line for them."""
    tokens = {f"{person} with a token": bearer(world.token(world.persons[person])) for person in PERSONS}
    for who, client in {**nobodies(world), **tokens}.items():
        assert agent_tokens.bearer(client.defaults.get("HTTP_AUTHORIZATION", "")) is None, who
    for who, client in agents(world).items():
        assert agent_tokens.bearer(client.defaults["HTTP_AUTHORIZATION"]) is not None, who


def test_the_table_has_few_open_routes_and_every_kind_of_door():
    """The table would prove little if every route were open."""
    doors = [one.door for one in TABLE.values()]
    assert {pattern for pattern, one in TABLE.items() if one.door == OPEN} == {
        "healthz", "readyz", "login", "logout", "static/muster.css", "api/v1/login", "login/code", "client/", "client/{name}",
    }  # fmt: skip
    assert min(doors.count(door) for door in (PAGE, API, STREAM, AGENT)) >= 1
