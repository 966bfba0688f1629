"""Removing secrets from a log line takes time linear in the untrusted input, and the line's length is bounded."""

import time

import pytest

from accounts.signin.password_rules import CommonCore
from common.telemetry import redaction

KIB_64 = 64 * 1024
# Repeated, each of these was, or could be, the start of a secret at every position.
HOSTILE = {
    "signed": "a-",
    "signed in parts": "a" * 12 + ":",
    "signed, almost": "a" * 12 + ":abcdef:",
    "address": "a+",
    "address with a user": "://a:",
    "address of a user": "a://",
    "colons behind an address": ":",
    "token": "mst_",
    "web token": "eyJ-",
    "web token in parts": "eyJaaaaaaaa.",
    "bearer": "bearer ",
    "bearer and blanks": " ",
    "password": "password",
    "password and quotes": "password'",
    "password and blanks": "password= ",
    "control": "\x00",
    "letters": "a",
    "dots": ".",
}


def seconds(shape: str, length: int) -> float:
    """CPU time of this thread, so that other load is not counted; the fastest of a few tries."""
    head = {"bearer and blanks": "bearer", "colons behind an address": "://a"}.get(shape, "")
    text = (head + HOSTILE[shape] * length)[:length]
    tries = []
    for _ in range(5):
        began = time.thread_time()
        redaction.without_secrets(text)
        redaction.one_line(text)
        tries.append(time.thread_time() - began)
    return min(tries)


@pytest.mark.parametrize("shape", HOSTILE)
def test_redaction_takes_linear_time(shape):
    """Eight times the text is 8 times the work; a pattern that scans to the end from every position needs 64 times."""
    assert seconds(shape, KIB_64) < 24 * max(seconds(shape, KIB_64 // 8), 0.000_05)


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_long_line_is_cut_before_it_is_searched(shape, monkeypatch):
    looked_at = []
    whole = redaction.without_secrets
    monkeypatch.setattr(redaction, "without_secrets", lambda text: looked_at.append(len(text)) or whole(text))
    said = redaction.redacted(HOSTILE[shape] * KIB_64)
    assert sum(looked_at) < 2 * redaction.MESSAGE_CHARACTERS
    assert len(said) < 2 * redaction.MESSAGE_CHARACTERS and said.endswith("characters]")


@pytest.mark.parametrize("back", range(0, 1400, 13))
def test_no_part_of_a_secret_survives_the_cut(back):
    """Wherever the cut falls, the beginning of a token is never shown."""
    token = "mst_" + "Zk3v9tq0" * 6
    for secret in (token, f"Bearer {token}", f"postgres://muster:{token[4:]}@db/x", f"password={token[4:]}"):
        filler = "x " * redaction.MESSAGE_CHARACTERS
        text = filler[: redaction.MESSAGE_CHARACTERS + 200 - back] + secret + filler
        assert "Zk3v" not in redaction.redacted(text)


def test_many_secrets_before_the_cut_do_not_expose_the_token_at_its_edge():
    many = ("mst_" + "Zk3v9tq0" * 6 + " ") * 1000
    for length in range(6000, 6100):
        assert "Zk3v" not in redaction.redacted(many[:length])


def test_a_short_line_stays_whole():
    said = "x" * redaction.MESSAGE_CHARACTERS
    assert redaction.redacted(said) == said


def test_a_password_of_punctuation_is_judged_in_linear_time():
    """`CommonCore` uses a regular expression of its own."""

    def spent(length: int) -> float:
        tries = []
        for _ in range(3):
            began = time.thread_time()
            CommonCore().validate("!" * length + "llama bridge")
            tries.append(time.thread_time() - began)
        return min(tries)

    assert spent(32_000) < 24 * max(spent(4_000), 0.000_5)
