"""tests/README.md names the owner of every promise: each is there, each once, and no document was forgotten."""

import re
from collections import Counter
from pathlib import Path

from tests.support import owners

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (?P<promise>.+) \| (?P<document>[\w-]+\.md) \| `(?P<path>[\w/]+\.py)::(?P<name>\w+)` \|$")
WITHOUT_PROMISES = {
    "README.md": "lists the documents",
    "architecture.md": "speaks to contributors; import contracts and test_rooms.py check it",
    "compared.md": "is about other tools",
    "extending.md": "speaks to contributors",
    "figures.md": "is what was measured; bin/bench prints it",
    "glossary.md": "explains terms",
}


def lines() -> list[str]:
    """The rows of the table of promises, as they are written."""
    text = (ROOT / "tests/README.md").read_text()
    table = text.partition("| promise | document | owner |\n|---|---|---|\n")[2].partition("\n\n")[0]
    return table.splitlines()


def rows() -> list[re.Match[str]]:
    return [row for row in map(ROW.match, lines()) if row]


def test_every_owner_exists():
    missing = [
        f"{row['path']}::{row['name']} owns: {row['promise']}"
        for row in rows()
        if not owners.exists(row["path"], row["name"])
    ]
    assert not missing, "no such test:\n" + "\n".join(missing)


def test_every_promise_is_one_row_that_names_a_document():
    unread = [line for line in lines() if not ROW.match(line)]
    counts = Counter((row["promise"].lower(), row["document"]) for row in rows())
    twice = [f"{document}: {promise}" for (promise, document), count in counts.items() if count > 1]
    assert lines() and not unread, "not `| promise | document.md | path.py::name |`:\n" + "\n".join(unread)
    assert not twice, "promised twice:\n" + "\n".join(twice)


def test_every_document_has_a_promise_or_a_reason_to_have_none():
    there = {path.name for path in (ROOT / "docs").glob("*.md")}
    promising = {row["document"] for row in rows()} - {"README.md"}  # that of the repository, not of docs/
    wrong = {
        "neither a row nor a reason": there - promising - WITHOUT_PROMISES.keys(),
        "a row and a reason to have none": promising & WITHOUT_PROMISES.keys(),
        "no such document": (promising | WITHOUT_PROMISES.keys()) - there,
    }
    assert not any(wrong.values()), "\n".join(f"{what}: {sorted(found)}" for what, found in wrong.items() if found)
