"""A pytest plugin: how much of what takes long runs. The quick run leaves all of it out, the full run nothing.

CI runs a part, by the commit's hash, so that successive commits run different ones:

    long     one in sixty; takes minutes, or is one of many alike. Where one runs, it replaces the short forms (marked
             `sample`) in the same file
    sampled  one in six; others that always run show nearly the same
    full     none: what it needs is built for minutes, whichever one of its file is chosen
    ci       all
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELP = "of the tests that take long: none of them, CI's part, chosen by the commit's hash, or all (default none)"
PARTS = {"long": 60, "sampled": 6, "ci": 1}  # one in so many runs in CI

LEFT_OUT = pytest.StashKey[int]()

T = TypeVar("T")


def part(found: Sequence[T], *, of: int, commit: str) -> list[T]:
    """One in `of` items, with an offset from the commit's hash."""
    return list(found[int(commit, 16) % of :: of])


def head() -> str:
    """The commit that is checked out, 40 hexadecimal digits."""
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    return said.stdout.strip()


def pytest_addoption(parser):
    parser.addoption("--long", choices=("none", "part", "all"), default="none", help=HELP)


def pytest_report_header(config):
    return f"long tests: {_said(config)}"


def pytest_collection_modifyitems(config, items):
    marked = {name: [item for item in items if item.get_closest_marker(name)] for name in (*PARTS, "full", "sample")}
    slow = {item for name in (*PARTS, "full") for item in marked[name]}
    taken = {"none": set[pytest.Item](), "all": slow}.get(config.getoption("--long"))
    if taken is None:
        commit = head()
        taken = {item for name, of in PARTS.items() for item in part(marked[name], of=of, commit=commit)}
    files = {item.path for item in marked["long"] if item in taken}
    left_out = slow - taken | {item for item in marked["sample"] if item.path in files}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    config.stash[LEFT_OUT] = len(left_out)


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.line(f"long tests: {_said(config)}; {left_out} tests were left out (`--long all` runs them)")


def _said(config) -> str:
    chosen = config.getoption("--long")
    return f"CI's part, chosen by {head()[:12]}" if chosen == "part" else chosen
