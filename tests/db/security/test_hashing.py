"""Hashing a password takes 0.3 s of a core, on purpose: other requests do not wait for it."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from django.contrib.auth.hashers import check_password, make_password
from django.db import connection
from django.test import Client

from accounts.signin import password_hashing
from common.limits.turns import ThreadTurns
from controlplane import settings as real
from controlplane.edge.room import MOST_UNKNOWN


class Turns:
    """Records whether a request holds a database connection while it waits for its turn."""

    def __init__(self):
        self.kept = []

    @contextmanager
    def turn(self, group):
        self.kept.append(connection.connection is not None)
        yield


@pytest.mark.parametrize("path", ["/login", "/api/v1/login"])
def test_a_login_holds_no_database_connection_while_it_waits(transactional_db, settings, monkeypatch, path):
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    turns = Turns()
    monkeypatch.setattr(password_hashing, "turns", turns)
    Client().post(path, {"username": "nobody", "password": "a wrong one, of course"}, content_type="application/json")
    Client().post(path, {"username": "nobody", "password": "a wrong one, of course"})
    assert turns.kept and not any(turns.kept)


def test_stored_hashes_are_in_the_format_of_django(settings):
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    ours = make_password("correct horse")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    assert check_password("correct horse", ours)


@pytest.fixture
def nobody_may_wait(settings, monkeypatch):
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    turns = ThreadTurns(1, each=1, most_waiting=0, words="many people are signing in")
    monkeypatch.setattr(password_hashing, "turns", turns)
    with turns.turn("an address"):
        yield


@pytest.mark.parametrize("path", ["/login", "/api/v1/login"])
def test_a_login_behind_too_many_others_is_refused_with_retry_after(transactional_db, nobody_may_wait, path):
    sent = {"username": "nobody", "password": "a wrong one, of course"}
    kind = {"content_type": "application/json"} if path.startswith("/api") else {}
    answer = Client().post(path, sent, **kind)
    assert answer.status_code == 429
    assert answer["Retry-After"] == "2"
    assert "many people are signing in" in answer.content.decode()


def test_hashing_leaves_room_for_other_requests():
    assert password_hashing.turns.most_in_all + password_hashing.AT_ONCE < MOST_UNKNOWN


def test_logins_queue_by_address(transactional_db, settings, monkeypatch):
    """Logins of a flood wait for each other; one from another address goes next."""
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    groups = []
    monkeypatch.setattr(
        password_hashing, "turns", SimpleNamespace(turn=lambda group: groups.append(group) or nullcontext())
    )
    for address in ("192.0.2.1", "192.0.2.2"):
        Client(REMOTE_ADDR=address).post("/login", {"username": "nobody", "password": "a wrong one"})
    assert set(groups) == {"192.0.2.1", "192.0.2.2"}
