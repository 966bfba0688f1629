"""Mutants are the same in each run and keep their ids; runs tell killed from survived; a run goes on where one stopped."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutants import compare
from tests.support.mutations import changed, mentions, mutants, readers

ROOT = Path(__file__).resolve().parents[3]
SOURCE = '''
"""About lines."""

MOST = 3
TWICE = MOST * 2


def is_long(lines: list, least: "int" = 1) -> bool:
    """Whether there are more than the least."""
    return len(lines) > least and not lines == ["a message"]


def first(lines):
    at = 0
    while at < TWICE:
        if lines[at]:
            return at
        at += 1
    return None


class Kind:
    SHORT = "short"

    def unused(self):
        log.info("short")
        raise ValueError("this is a message")
'''
TESTS = """
from lines import first, is_long

def test_more_than_the_least_are_long():
    assert is_long(["a", "b"]) and not is_long(["a"])

def test_the_first_is_found():
    assert first(["", "b"]) == 1
"""


def operators(path: Path) -> list[str]:
    return [one.id.partition("::")[2].rpartition("::")[0] for one in mutants(path.parent, [path.name])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mutants")
    (folder / "lines.py").write_text(SOURCE)
    (folder / "test_lines.py").write_text(TESTS)
    return folder


def test_a_file_has_these_mutants(folder):
    assert operators(folder / "lines.py") == [
        "MOST::one more::0",
        "TWICE::Mult to Add::0",
        "TWICE::one more::0",
        "is_long::one more::0",
        "is_long::return None::0",
        "is_long::And to Or::0",
        "is_long::Gt to GtE::0",
        "is_long::without not::0",
        "is_long::Eq to NotEq::0",
        "first::one more::0",
        "first::negated::0",
        "first::Lt to LtE::0",
        "first::negated::1",
        "first::return None::0",
        "first::Add to Sub::0",
        "first::one more::1",
        "Kind.SHORT::empty text::0",
    ]


def test_edits_elsewhere_change_no_id(folder, tmp_path):
    edited = SOURCE.replace('"""Whether', '# A comment.\n    """Is it so that').replace(
        "MOST = 3", "MOST = 4\nLEAST = 1"
    )
    (tmp_path / "lines.py").write_text(edited)
    before = {one.id for one in mutants(folder, ["lines.py"])}
    after = {one.id for one in mutants(tmp_path, ["lines.py"])}
    assert {one.split("::")[1] for one in before ^ after} == {"MOST", "LEAST"}


def test_one_change_is_made(folder):
    (place,) = [one.place for one in mutants(folder, ["lines.py"]) if "Gt to GtE" in one.id]
    assert ast.unparse(changed(SOURCE, place)) == ast.unparse(ast.parse(SOURCE)).replace("> least", ">= least")


def test_a_constant_reaches_those_who_read_what_is_made_of_it(folder):
    mentioned = mentions(folder, ["lines.py", "test_lines.py"])
    most, is_long = (
        next(one for one in mutants(folder, ["lines.py"]) if name in one.id) for name in ("MOST", "is_long")
    )
    assert readers(mentioned, most) == {("lines.py", "first")}
    assert readers(mentioned, is_long) == {("lines.py", "is_long")}


def run(folder: Path, *words: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-m", "tests.support.mutants", "--root", str(folder), "--files", "lines.py"]
    done = subprocess.run(
        [*command, "--tests", "test_lines.py", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def results(folder) -> Path:
    """The results of a run that was cut off in its third line, and then of the rest."""
    path = folder / "results.jsonl"
    run(folder, "--results", str(path))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:30]]))
    run(folder, "--results", str(path))
    return path


def outcomes(path: Path) -> dict[str, str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {"::".join(row["id"].split("::")[1:4]): row["outcome"] for row in rows}


def test_killed_endless_surviving_and_uncovered_mutants_are_told_apart(results):
    found = outcomes(results)
    assert found["is_long::Gt to GtE::0"] == "killed"
    assert found["first::Lt to LtE::0"] == "survived"  # no test reads to the end
    assert found["first::Add to Sub::0"] == "killed"
    assert found["Kind.SHORT::empty text::0"] == "not covered"


def test_a_run_goes_on_where_it_stopped(folder, results):
    before = results.read_text()
    assert len(outcomes(results)) == len(operators(folder / "lines.py"))
    assert "0 mutants to run" in run(folder, "--results", str(results))
    assert results.read_text() == before


def rows(**outcomes: str) -> dict[str, dict]:
    return {
        name: {"id": name, "outcome": outcome.replace("_", " "), "test": "t", "text": ""}
        for name, outcome in outcomes.items()
    }


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        (rows(a="timeout", b="not_covered", c="killed"), 0, "after: 1 of 3"),
        (rows(a="survived", b="survived", c="killed"), 1, "survives only after: a (killed before t)"),
        (rows(a="not_covered", b="survived", c="killed"), 1, "survives only after: a (killed before t)"),
        (rows(a="killed", b="survived", c="killed", d="survived"), 1, "survives only after: d (not run before"),
        (rows(a="killed", b="survived"), 2, "not run after: c"),
    ],
)
def test_what_survives_only_after_fails_the_comparison(after, code, said, capsys):
    assert compare(rows(a="killed", b="survived", c="timeout"), after) == code
    assert said in capsys.readouterr().out
