"""docs/security.md covers every requirement and names only tests that exist."""

import ast
import csv
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.utils.module_loading import import_string

from accounts.models import Token
from accounts.session_store import SessionStore
from accounts.signin.password_rules import OF_THE_HOUSE
from controlplane import settings as real

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
ROW = re.compile(r"^\| (V[\d., V]+) \| (.+?) \| (?:`([^`]+)`)? ?\|$", re.M)
# The requirements of ASVS 5.0 by number and level.
LEVELS = ROOT / "tests/unit/project/asvs_ids.csv"


def rows() -> list[tuple[list[str], str, str]]:
    return [(ids.split(", "), words, test) for ids, words, test in ROW.findall(PAGE)]


def wanted() -> dict[str, int]:
    with LEVELS.open() as file:
        return {row["id"]: int(row["level"]) for row in csv.DictReader(file)}


def test_every_requirement_has_one_row():
    answered = [one for ids, _, _ in rows() for one in ids]
    assert len(answered) == len(set(answered))
    assert set(answered) == set(wanted())
    assert len([one for one, level in wanted().items() if level == 1]) == 70


@pytest.mark.parametrize(
    ("ids", "words", "test"), rows(), ids=lambda value: value[0] if isinstance(value, list) else ""
)
def test_a_row_names_a_test_or_gives_a_reason(ids, words, test):
    is_excused = words.startswith("does not apply") or "open:" in words
    levels = {wanted()[one] for one in ids}
    if not test:
        assert is_excused or "above" in words or '"' in words, (ids, words)
        assert is_excused or levels == {2} or '"' in words, f"{ids} of level 1 needs a test"
        return
    path, _, name = test.partition("::")
    file = ROOT / "tests" / path
    assert file.exists(), test
    if name:
        functions = {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}
        assert name in functions, test


def test_an_excused_requirement_gives_a_reason():
    for ids, words, _ in rows():
        if "does not apply" in words:
            assert re.match(r"does not apply( to the server)?[:,] \w+", words), (ids, words)


def test_the_page_lists_forbidden_password_words_and_outgoing_connections():
    assert all(word in PAGE for word in OF_THE_HOUSE)
    assert "What Muster talks to" in PAGE


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("MUSTER_SESSION_SECONDS", "7 days"),
        ("MUSTER_SESSION_IDLE_SECONDS", "24 hours"),
        ("AXES_FAILURE_LIMIT", "Five wrong passwords"),
        ("MUSTER_RATE_LOGIN", "60 times a minute"),
        ("MUSTER_RATE_USER", "6,000 times a minute"),
    ],
)
def test_figures_on_the_page_match_the_settings(setting, said):
    figures = {"7 days": 7 * 86400, "24 hours": 86400, "Five wrong passwords": 5, "60 times a minute": 60}
    assert said in PAGE
    assert getattr(settings, setting) == {**figures, "6,000 times a minute": 6000}[said]


def test_passwords_are_hashed_with_pbkdf2_and_enough_iterations():
    first = import_string(real.PASSWORD_HASHERS[0])  # only tests hash cheaply
    assert issubclass(first, PBKDF2PasswordHasher) and first.iterations == PBKDF2PasswordHasher.iterations
    assert PBKDF2PasswordHasher.iterations >= 600_000 and PBKDF2PasswordHasher.algorithm == "pbkdf2_sha256"


def new_session_key() -> str:
    session = SessionStore()
    session.create()
    return session.session_key


def test_tokens_and_session_keys_have_enough_entropy(people):
    texts = {Token.issue(people.owner, "x")[1] for _ in range(50)}
    assert len(texts) == 50 and min(len(text) for text in texts) >= len(Token.PREFIX) + 43  # 43 x 6 bits
    keys = {new_session_key() for _ in range(50)}
    assert len(keys) == 50 and {len(key) for key in keys} == {32}  # of 36 letters and digits: 165 bits
    assert len(Token.digest_of("x")) == 64
