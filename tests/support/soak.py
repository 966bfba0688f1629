"""The ledger of tests with guards: which passed when, with which state of what they guard.

It lies in the user's cache folder, since it says what was run on this machine.
"""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from embedded.files import read_json, write_json
from tests.support import keys, stamps

ROOT = Path(__file__).resolve().parents[2]


def ledger_file() -> Path:
    return keys.cache_folder() / "soak.json"


@dataclass(frozen=True)
class Ledger:
    """By test: the digest of what it guards, when it passed (UTC), at which commit, and its seconds."""

    passed: dict[str, dict[str, Any]]

    @classmethod
    def read(cls) -> "Ledger":
        found = read_json(ledger_file())
        return cls(found if isinstance(found, dict) else {})

    def holds(self, item: pytest.Item) -> bool:
        """Whether the test has passed with what is there now."""
        return self.passed.get(item.nodeid, {}).get("key") == key(item)

    def words(self, item: pytest.Item) -> str:
        known = self.passed[item.nodeid]
        return f"passed at {known['commit'][:12]} on {known['at']}"

    def age_days(self, item: pytest.Item, now: datetime) -> float | None:
        known = self.passed.get(item.nodeid)
        return None if known is None else (now - datetime.fromisoformat(known["at"])).total_seconds() / 86400


def guards(item: pytest.Item) -> tuple[str, ...]:
    """The files and folders that a test guards, and its own file."""
    named = _named(item)
    assert named, f"{item.nodeid}: soak(guards=...) names what the test guards"
    return (*named, str(item.path.relative_to(ROOT)))


def is_guarded(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("soak") or _named(item))


def _named(item: pytest.Item) -> tuple[str, ...]:
    marks = (item.get_closest_marker(name) for name in ("soak", "ci"))
    return next((tuple(mark.kwargs["guards"]) for mark in marks if mark and mark.kwargs.get("guards")), ())


def key(item: pytest.Item) -> str:
    return _digest(guards(item))


@cache
def _digest(paths: tuple[str, ...]) -> str:
    return keys.digest(files(paths))


def files(paths: Iterable[str]) -> list[str]:
    """Tracked files in these paths. A path that names none is a mistake."""
    found = list[str]()
    for path in paths:
        inside = [one for one in keys.tracked() if one == path or one.startswith(f"{path.rstrip('/')}/")]
        assert inside, f"soak(guards=...) names {path}, which no tracked file lies in"
        found += inside
    return sorted(set(found))


def stale(items: Iterable[pytest.Item], ledger: Ledger) -> list[pytest.Item]:
    """Return soak tests whose guards differ from when they last passed here; of those that never did, the ones whose
    guards were changed since the main branch. Repetitions of a test are not among them."""
    marked = [item for item in items if (mark := item.get_closest_marker("soak")) and not mark.kwargs.get("repeats")]
    found = [item for item in marked if not ledger.holds(item)]
    touched = changed()
    return [item for item in found if item.nodeid in ledger.passed or touched & set(files(guards(item)))]


@cache
def changed() -> frozenset[str]:
    """Return the files that differ from where this change began."""
    base = begin()
    return frozenset(_git("diff", "--name-only", base).splitlines()) if base else frozenset()


def begin() -> str:
    """Return the commit where this change began: MUSTER_BASE, the fetched main branch, or the newest commit whose full
    run passed here. Empty where none is known: then only the ledger tells what is stale."""
    head = keys.head()
    fetched = _git("merge-base", "HEAD", "origin/main").strip()
    for one in (os.environ.get("MUSTER_BASE", ""), fetched if fetched != head else "", *stamps.passed_in_full()):
        if one and _git("merge-base", "HEAD", one).strip() == _git("rev-parse", one).strip():
            return one
    return ""


def account(taken: Iterable[pytest.Item], items: Iterable[pytest.Item], ledger: Ledger, now: datetime) -> str:
    """One line about the soak tests of a run: how many run since what they guard changed, and how old the others are."""
    chosen, others = set(taken), [item for item in items if item.get_closest_marker("soak")]
    others = [item for item in others if item not in chosen]
    ages = sorted(age for item in others if (age := ledger.age_days(item, now)) is not None)
    words = f"soak: {len(chosen)} of {len(chosen) + len(others)} run, since what they guard was changed"
    if ages:
        words += f"; {len(ages)} others passed here {ages[0]:.0f} to {ages[-1]:.0f} days ago"
    never = len(others) - len(ages)
    return f"{words}; {never} never ran here" if never else words


def note_passed(item: pytest.Item, *, seconds: float) -> None:
    """Only of a checkout without changes: the ledger says what a commit was proven with."""
    if not keys.is_clean():
        return
    known = dict(Ledger.read().passed)
    known[item.nodeid] = {
        "key": key(item), "at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": keys.head(), "seconds": round(seconds, 1),
    }  # fmt: skip
    ledger_file().parent.mkdir(parents=True, exist_ok=True)
    write_json(ledger_file(), value=known)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout
