"""Every route of the URL map, with every method, by everybody. The table is in routes.py."""

import zlib
from contextlib import contextmanager

import pytest
from django.core import signing
from django.db import transaction
from django.test import Client
from django.utils import timezone

from accounts.models import Team, User
from jobs.ingest import agent_tokens
from tests.db.security.routes import (
    AGENT,
    API,
    MANAGING,
    METHODS,
    NOBODY,
    OPEN,
    PAGE,
    PERSONS,
    READING,
    SECRET,
    STREAM,
    SUBMITTING,
    TABLE,
    AccessFixture,
    address,
    body,
    patterns,
)
from tests.support import packs
from tests.support.builders import identity


@pytest.fixture
def world(lab, people, settings, tmp_path) -> AccessFixture:
    settings.MEDIA_ROOT = tmp_path
    return AccessFixture(lab, people)


def test_every_route_has_its_line_and_every_line_its_route():
    resolved = {pattern for pattern, one in TABLE.items() if one.is_resolved}
    assert set(patterns()) - resolved == set(), "new routes: say in tests/db/security/routes.py who may use them"
    assert resolved - set(patterns()) == set(), "these routes are gone"


def nobodies(world: AccessFixture) -> dict[str, Client]:
    """Who brings something that is worth nothing, or not here."""
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
    """The same claims, one letter of them changed."""
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


@contextmanager
def undone():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def ask(client: Client, method: str, pattern: str, world: AccessFixture) -> tuple[int, str, str]:
    """(status, where it leads, what it says). Whatever it changed is undone."""
    kept = client.cookies.output(header="")
    with undone():
        answer = client.generic(method, address(pattern, world), body(pattern, world), TABLE[pattern].kind)
        is_stream = answer.headers.get("Content-Type", "").startswith("text/event-stream")
        text = "" if is_stream else b"".join(answer).decode(errors="replace")
    client.cookies.load(kept)
    return answer.status_code, answer.headers.get("Location", ""), text


def expected(pattern: str, method: str, person: str | None, scope: str = MANAGING) -> int:
    """The status of the refusal, or 0: let in."""
    one = TABLE[pattern]
    if method == "TRACE":
        return 405
    if person is None:
        return 405 if one.door in (AGENT, STREAM) and method not in one.rules else NOBODY[one.door]
    return one.rules[method].answer(person, scope) if method in one.rules else 405


def verify(
    world: AccessFixture, pattern: str, client: Client, who: str, person: str | None, scope: str = MANAGING
) -> None:
    for method in METHODS:
        status, leads_to, said = ask(client, method, pattern, world)
        wanted = expected(pattern, method, person, scope)
        if wanted == 302:
            assert (status, leads_to.startswith("/login?next=")) == (302, True), (who, method, pattern, status)
        elif wanted == 422 and scope != MANAGING:  # whichever is looked at first
            assert status in (403, 422), (who, method, pattern, status, said[:300])
        elif wanted:
            assert status == wanted, (who, method, pattern, status, said[:300])
        else:
            assert status < 400 and not leads_to.startswith("/login?"), (who, method, pattern, status, said[:300])
        if person in (None, "stranger"):
            assert SECRET not in said, f"{who} reads what is not theirs: {method} {pattern}"


@pytest.mark.parametrize("pattern", sorted(TABLE))
def test_everybody(world, pattern):
    """One world for a route, since making it takes longer than to ask; every request is undone."""
    people_with_a_session(world, pattern)
    people_with_a_token(world, pattern)
    agents_of_jobs(world, pattern)
    if TABLE[pattern].door == API:
        tokens_of_less_scope(world, pattern)
        tokens_for_another_team(world, pattern)
    nobody(world, pattern)


def people_with_a_session(world: AccessFixture, pattern: str) -> None:
    door = TABLE[pattern].door
    for person in PERSONS:
        client = session(world.persons[person])
        verify(world, pattern, client, f"{person} with a session", None if door == AGENT else person)


def people_with_a_token(world: AccessFixture, pattern: str) -> None:
    """A token opens the API. It opens no page, no stream of a browser, and nothing of the agents."""
    is_open = TABLE[pattern].door in (API, OPEN)
    for person in PERSONS:
        client = bearer(world.token(world.persons[person]))
        verify(world, pattern, client, f"{person} with a token", person if is_open else None)


def agents_of_jobs(world: AccessFixture, pattern: str) -> None:
    """An agent's token is worth something at the agents' door only."""
    door = TABLE[pattern].door
    for who, client in agents(world).items():
        person = "member" if door == AGENT and "this" in who else "stranger" if door in (AGENT, OPEN) else None
        verify(world, pattern, client, who, person)


def tokens_of_less_scope(world: AccessFixture, pattern: str) -> None:
    """What the person may do, as far as the token's scope goes."""
    for person in ("admin", "member", "stranger", "root"):
        for scope in (READING, SUBMITTING):
            client = bearer(world.token(world.persons[person], scope))
            verify(world, pattern, client, f"{person} with a token to {scope}", person, scope)


def tokens_for_another_team(world: AccessFixture, pattern: str) -> None:
    """A platform administrator's token for another team finds nothing of ours."""
    client = bearer(world.token(world.persons["root"], team=Team.objects.get(name="vision")))
    for method in METHODS:
        status, _, said = ask(client, method, pattern, world)
        assert SECRET not in said, (method, pattern)
        if "{" in pattern and method in TABLE[pattern].rules:
            assert status == 404, (method, pattern, status)


def nobody(world: AccessFixture, pattern: str) -> None:
    for who, client in nobodies(world).items():
        verify(world, pattern, client, who, "stranger" if TABLE[pattern].door == OPEN else None)


def test_many_jobs_at_once_are_refused_one_by_one(world):
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
    answer = agents(world)["agent of another job"].post(
        "/agent/v1/batches", TABLE["agent/v1/batches"].body, content_type="application/x-muster-batch"
    )
    assert answer.status_code == 200
    assert (world.state(), list(world.job.replicas.values())) == before


def test_the_doors_differ():
    """The table would prove little if everything stood open."""
    doors = [one.door for one in TABLE.values()]
    assert {pattern for pattern, one in TABLE.items() if one.door == OPEN} == {
        "", "healthz", "readyz", "login", "logout", "static/muster.css", "api/v1/login", "login/code",
    }  # fmt: skip
    assert min(doors.count(door) for door in (PAGE, API, STREAM, AGENT)) >= 1
