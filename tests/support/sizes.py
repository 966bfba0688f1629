"""A pytest plugin: which tests run in which size of a run (`--size`).

    mark             quick  ci  all  soak
    none               x     x   x
    ci                       x   x          needs pods, an installation, processes of muster-server, torch, or 20 seconds of CPU
    ci(guards=..)           (x)  x          costs minutes of CPU: CI runs it where its guards differ from when it last passed here
    full                         x          a promise that others nearly show, or whose setting costs minutes
    soak(guards=..)              (x)  x     repetitions of a race, matrices, whole corpora

`guards` names the files and folders of the product that a test guards. A ledger in the user's cache folder keeps
the digest of each test's guards when it last passed (soak.py): `--size soak` goes on with those that have not passed
with what is there now, and `--size all` runs those whose guards a change touched. Tests of CI with guards are in it, too.
`soak(repeats=True)` is one more round of a race whose first round is in `all`: only the size soak runs it.
"""

import time
from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from tests.support import soak

SIZES = ("quick", "ci", "all", "soak")
MARKS = {  # mark: the sizes in which its tests run
    "": ("quick", "ci", "all"),
    "ci": ("ci", "all"),
    "full": ("all",),
    "soak": ("soak",),
}
LEFT_OUT = pytest.StashKey[dict[str, int]]()
SOAK = pytest.StashKey[str]()
chosen = SIZES[0]  # the size of this run, for those who import test modules
KNOWN = pytest.StashKey[list[str]]()


def pytest_addoption(parser):
    parser.addoption(
        "--size", choices=SIZES, default="quick", help="how much runs: tests/support/sizes.py (default quick)"
    )
    parser.addoption(
        "--fresh", action="store_true", help="tests with guards also where they passed with what is there now"
    )


def pytest_configure(config):
    global chosen
    chosen = config.getoption("--size")
    config.addinivalue_line(
        "markers", "ci(guards): not in the quick size, and in ci only if what it guards was changed"
    )
    config.addinivalue_line("markers", "full: only in the size all")
    config.addinivalue_line(
        "markers",
        "soak(guards, repeats): only in the size soak, and in all if what it guards was changed and it repeats no other test",
    )


def pytest_report_header(config):
    return f"size: {config.getoption('--size')}"


def mark_of(item: pytest.Item) -> str:
    """The strictest of a test's marks, empty if it has none: a case of a matrix may have one beside its function's."""
    return strictest({mark.name for mark in item.iter_markers()})


def strictest(marks: Collection[str]) -> str:
    return next((name for name in ("soak", "full", "ci") if name in marks), "")


@pytest.hookimpl(trylast=True)  # after -k and -m have chosen
def pytest_collection_modifyitems(config, items):
    size, is_fresh = config.getoption("--size"), config.getoption("--fresh")
    named = tuple(one for one in config.args if "::" in one)  # whoever names a test wants it
    ledger = soak.Ledger.read()
    stale = set(soak.stale(items, ledger)) if size == "all" else set()

    known = list[str]()

    def runs(item: pytest.Item) -> bool:
        mark = mark_of(item)
        if mark == "soak":
            return item in stale or (size == "soak" and (is_fresh or not ledger.holds(item)))
        if size == "ci" and soak.is_guarded(item) and not is_fresh and ledger.holds(item):
            known.append(f"{item.name}, {ledger.words(item)}")
            return False
        return size in MARKS[mark]

    kept = [item for item in items if runs(item) or (named and item.nodeid.startswith(named))]
    left_out = set(items) - set(kept)
    if size == "all" and any(mark_of(item) == "soak" for item in items):
        config.stash[SOAK] = soak.account(stale, items, ledger, datetime.now(UTC))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept
    config.stash[KNOWN] = known
    marks = [mark_of(item) for item in left_out]
    config.stash[LEFT_OUT] = {name: marks.count(name) for name in MARKS if name and name in marks}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.passed and soak.is_guarded(item):
        soak.note_passed(item, seconds=time.time() - call.start)
    return report


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, {}):
        words = ", ".join(f"{count} {name}" for name, count in left_out.items())
        terminalreporter.line(f"left out by --size {config.getoption('--size')}: {words}")
    for words in config.stash.get(KNOWN, []):
        terminalreporter.line(f"left out, since what it guards is as it was: {words}")
    if words := config.stash.get(SOAK, ""):
        terminalreporter.line(words)
