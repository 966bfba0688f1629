"""Every route of the URL map, with every method, by everybody. The table is in routes.py."""

from contextlib import contextmanager

import pytest
from django.core import signing
from django.db import transaction
from django.test import Client
from django.utils import timezone

from accounts.models import User
from jobs import agent_tokens
from tests.builders import identity
from tests.security.routes import (
    AGENT,
    API,
    METHODS,
    NOBODY,
    OPEN,
    PAGE,
    PERSONS,
    SECRET,
    STREAM,
    TABLE,
    World,
    address,
    body,
    patterns,
)


@pytest.fixture
def world(lab, people, settings, tmp_path) -> World:
    settings.MEDIA_ROOT = tmp_path
    return World(lab, people)


def test_every_route_has_its_line_and_every_line_its_route():
    resolved = {pattern for pattern, one in TABLE.items() if one.is_resolved}
    assert set(patterns()) - resolved == set(), "new routes: say in tests/security/routes.py who may use them"
    assert resolved - set(patterns()) == set(), "these routes are gone"


def nobodies(world: World) -> dict[str, Client]:
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


def agents(world: World) -> dict[str, Client]:
    return {
        "agent of this job": bearer(agent_tokens.issue(identity(world.job))),
        "agent of another job": bearer(agent_tokens.issue(identity(world.theirs))),
    }


@contextmanager
def undone():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def ask(client: Client, method: str, pattern: str, world: World) -> tuple[int, str, str]:
    """(status, where it leads, what it says). Whatever it changed is undone."""
    kept = client.cookies.output(header="")
    with undone():
        answer = client.generic(method, address(pattern, world), body(pattern, world), TABLE[pattern].kind)
        is_stream = answer.headers.get("Content-Type", "").startswith("text/event-stream")
        text = "" if is_stream else b"".join(answer).decode(errors="replace")
    client.cookies.load(kept)
    return answer.status_code, answer.headers.get("Location", ""), text


def expected(pattern: str, method: str, person: str | None) -> int:
    """The status of the refusal, or 0: let in."""
    one = TABLE[pattern]
    if method == "TRACE":
        return 405
    if person is None:
        return 405 if one.door in (AGENT, STREAM) and method not in one.rules else NOBODY[one.door]
    return one.rules[method][person] if method in one.rules else 405


def verify(world: World, pattern: str, client: Client, who: str, person: str | None) -> None:
    for method in METHODS:
        status, leads_to, said = ask(client, method, pattern, world)
        wanted = expected(pattern, method, person)
        if wanted == 302:
            assert (status, leads_to.startswith("/login?next=")) == (302, True), (who, method, pattern, status)
        elif wanted:
            assert status == wanted, (who, method, pattern, status, said[:300])
        else:
            assert status < 400 and not leads_to.startswith("/login?"), (who, method, pattern, status, said[:300])
        if person in (None, "stranger"):
            assert SECRET not in said, f"{who} reads what is not theirs: {method} {pattern}"


ALL = pytest.mark.parametrize("pattern", sorted(TABLE))


@ALL
def test_people_with_a_session(world, pattern):
    door = TABLE[pattern].door
    for person in PERSONS:
        verify(
            world,
            pattern,
            session(world.persons[person]),
            f"{person} with a session",
            None if door == AGENT else person,
        )


@ALL
def test_people_with_a_token(world, pattern):
    """A token opens the API. It opens no page, no stream of a browser, and nothing of the agents."""
    door = TABLE[pattern].door
    for person in PERSONS:
        client = bearer(world.token(world.persons[person]))
        verify(world, pattern, client, f"{person} with a token", person if door in (API, OPEN) else None)


@ALL
def test_nobody(world, pattern):
    door = TABLE[pattern].door
    for who, client in nobodies(world).items():
        verify(world, pattern, client, who, "stranger" if door == OPEN else None)


@ALL
def test_agents(world, pattern):
    """An agent's token is worth something at the agents' door only."""
    door = TABLE[pattern].door
    for who, client in agents(world).items():
        verify(
            world,
            pattern,
            client,
            who,
            "stranger"
            if door in (OPEN, AGENT) and (door == OPEN or "another" in who)
            else "member"
            if door == AGENT
            else None,
        )


def test_an_agent_gets_the_code_of_its_own_job_and_no_other(world):
    ours, theirs = (client.get("/agent/v1/workspace").content for client in agents(world).values())
    assert ours == b"ours " + SECRET.encode()
    assert theirs == b"theirs"


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
        "", "healthz", "readyz", "login", "logout", "static/muster.css", "api/v1/login",
    }  # fmt: skip
    assert min(doors.count(door) for door in (PAGE, API, STREAM, AGENT)) >= 1
