"""A password takes 0.3 s of a core, on purpose: nobody else waits for that."""

import pytest
from django.contrib.auth.hashers import check_password, make_password
from django.db import connection
from django.test import Client

from accounts import hashing
from controlplane import settings as real


class Turns:
    """Notes whether who waits for a turn keeps a connection."""

    def __init__(self):
        self.kept = []

    def __enter__(self):
        self.kept.append(connection.connection is not None)

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("path", ["/login", "/api/v1/login"])
def test_nobody_who_signs_in_waits_with_a_database_connection(transactional_db, settings, monkeypatch, path):
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    turns = Turns()
    monkeypatch.setattr(hashing, "turns", turns)
    Client().post(path, {"username": "nobody", "password": "a wrong one, of course"}, content_type="application/json")
    Client().post(path, {"username": "nobody", "password": "a wrong one, of course"})
    assert turns.kept and not any(turns.kept)


def test_what_is_stored_is_djangos_own(settings):
    settings.PASSWORD_HASHERS = real.PASSWORD_HASHERS
    ours = make_password("correct horse")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    assert check_password("correct horse", ours)
