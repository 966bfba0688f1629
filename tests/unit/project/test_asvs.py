"""docs/asvs.csv covers every requirement and names only tests and sections that exist; the pages have the figures of the settings."""

import ast
import csv
import re
from functools import cache
from pathlib import Path

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.utils.module_loading import import_string

from accounts.signin.password_rules import OF_THE_HOUSE
from controlplane import settings as real

ROOT = Path(__file__).resolve().parents[3]
PAGES = "\n".join((ROOT / f"docs/{name}.md").read_text() for name in ("security", "sign-in", "limits"))
HEADINGS = set(re.findall(r"^#+ (.+)$", PAGES, re.M))
# The requirements of ASVS 5.0 by number and level.
LEVELS = ROOT / "tests/unit/project/asvs_ids.csv"
STATUSES = {"met", "not applicable", "open"}
FIGURES = [
    ("MUSTER_SESSION_SECONDS", "7 days", 7 * 86400),
    ("MUSTER_SESSION_IDLE_SECONDS", "24 hours", 86400),
    ("AXES_FAILURE_LIMIT", "Five wrong passwords", 5),
    ("MUSTER_RATE_LOGIN", "60 times a minute", 60),
    ("MUSTER_RATE_USER", "6,000 times a minute", 6000),
]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


ROWS = table(ROOT / "docs/asvs.csv")
WANTED = {row["id"]: int(row["level"]) for row in table(LEVELS)}


@cache
def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / "tests" / path
    return file.is_file() and (not name or name in functions(file))


def test_every_requirement_has_one_row():
    assert [row["id"] for row in ROWS] == list(WANTED)
    assert {row["status"] for row in ROWS} <= STATUSES
    assert list(WANTED.values()).count(1) == 70


def test_a_met_requirement_names_a_test_or_a_section():
    met = [row for row in ROWS if row["status"] == "met"]
    assert [row["id"] for row in met if not row["shown_by"] and not row["section"]] == []
    assert [row["shown_by"] for row in ROWS if row["shown_by"] and not exists(row["shown_by"])] == []
    sections = {section for row in ROWS if row["section"] for section in row["section"].split("; ")}
    assert sections - HEADINGS == set()


def test_every_other_requirement_gives_a_reason():
    assert [row["id"] for row in ROWS if row["status"] != "met" and not re.match(r"\w+", row["remark"])] == []


def test_the_page_lists_forbidden_password_words_and_outgoing_connections():
    assert [word for word in OF_THE_HOUSE if word not in PAGES] == []
    assert "What Muster talks to" in HEADINGS


def test_figures_on_the_pages_match_the_settings():
    for setting, text, value in FIGURES:
        assert text in PAGES, text
        assert getattr(settings, setting) == value, setting


def test_passwords_are_hashed_with_pbkdf2_and_enough_iterations():
    first = import_string(real.PASSWORD_HASHERS[0])  # only tests hash cheaply
    assert issubclass(first, PBKDF2PasswordHasher) and first.iterations == PBKDF2PasswordHasher.iterations
    assert PBKDF2PasswordHasher.iterations >= 600_000 and PBKDF2PasswordHasher.algorithm == "pbkdf2_sha256"
