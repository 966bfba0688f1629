"""A pytest plugin: tests marked `long` belong to the full run. CI runs a tenth of them, a different one for each commit.

Where a long test runs, it replaces the short forms (marked `sample`) in the same file. A test marked `sampled` runs in CI
and in the full run, not in the quick one: it takes a tenth of its own cases, or others there show nearly the same. A test
marked `full` is never one of the tenth: what it needs is built for minutes, for whichever one of its file is chosen.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELP = "of the tests marked `long`: none of them, a tenth chosen by the commit's hash, or all (default none)"

LEFT_OUT = pytest.StashKey[int]()

T = TypeVar("T")


def tenth(found: Sequence[T], *, commit: str) -> list[T]:
    """Every tenth item, with an offset from the commit's hash, so that successive commits cover different tenths."""
    return list(found[int(commit, 16) % 10 :: 10])


def head() -> str:
    """The commit that is checked out, 40 hexadecimal digits."""
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    return said.stdout.strip()


def pytest_addoption(parser):
    parser.addoption("--long", choices=("none", "tenth", "all"), default="none", help=HELP)


def pytest_report_header(config):
    return f"long tests: {_said(config)}"


def pytest_collection_modifyitems(config, items):
    long = [item for item in items if item.get_closest_marker("long")]
    taken = {"none": [], "all": long}.get(config.getoption("--long"))
    if taken is None:
        taken = tenth(long, commit=head())
    files = {item.path for item in taken}
    full = [item for item in items if item.get_closest_marker("full")]
    left_out = {item for item in long if item not in taken}
    left_out |= set(full) if config.getoption("--long") != "all" else set()
    left_out |= {item for item in items if item.get_closest_marker("sample") and item.path in files}
    if config.getoption("--long") == "none":
        left_out |= {item for item in items if item.get_closest_marker("sampled")}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
    config.stash[LEFT_OUT] = len(left_out)


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.line(f"long tests: {_said(config)}; {left_out} tests were left out (`--long all` runs them)")


def _said(config) -> str:
    chosen = config.getoption("--long")
    return f"a tenth, chosen by {head()[:12]}" if chosen == "tenth" else chosen
