"""Hashes, digests and keys can be changed without locking anybody out."""

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher, identify_hasher
from django.core import signing
from django.test import Client

from accounts.models import Token, User

RIGHT = "owner-has-a-password"


def me(text: str) -> int:
    return Client().get("/api/v1/me", headers={"Authorization": f"Bearer {text}"}).status_code


def test_a_password_is_rehashed_when_the_default_changes(people, settings):
    before = User.objects.get(username="owner").password
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher", *settings.PASSWORD_HASHERS]
    assert Client().post("/login", {"username": "owner", "password": RIGHT}).status_code == 302
    after = User.objects.get(username="owner").password
    assert identify_hasher(before).algorithm == "md5" and identify_hasher(after).algorithm == "pbkdf2_sha256"
    assert f"${PBKDF2PasswordHasher.iterations}$" in after


def test_a_new_digest_of_tokens_is_used_while_the_old_one_is_still_accepted(people, monkeypatch):
    old = Token.issue(people.owner, "old")[1]
    monkeypatch.setattr(Token, "DIGESTS", ("sha3_256", *Token.DIGESTS))
    row, new = Token.issue(people.owner, "new")
    assert row.digest == Token.digests_of(new)[0] != Token.digests_of(new)[1]
    assert me(old) == me(new) == 200
    monkeypatch.setattr(Token, "DIGESTS", ("sha3_256",))
    assert (me(old), me(new)) == (401, 200)


@pytest.mark.django_db
def test_a_rotated_key_still_verifies_old_signatures(settings):
    signed = signing.dumps([1], salt="x")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", [settings.SECRET_KEY]
    assert signing.loads(signed, salt="x") == [1]
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(signing.BadSignature):
        signing.loads(signed, salt="x")
