"""The table of what was broken and how soon all was right again; and one installation for most of it."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.embedded.files import last_lines
from tests.faults.cast import Cast
from tests.faults.house import RIGHT_SECONDS, ROOT, House

BUSY = 3.0  # runnable processes per core; the matrix alone makes fewer than 1.5
ROWS: list[tuple[str, str, str, float | None]] = []  # fault, where, outcome, seconds


class Matrix:
    """Cells as they are proven."""

    def add(self, fault: str, where: str, outcome: str, seconds: float | None = None) -> None:
        ROWS.append((fault, where, outcome, seconds))

    def add_all(self, fault: str, seconds: dict[str, float]) -> None:
        """The promise is one of the product: it is not asked of a machine that others keep busy several times over."""
        load, outcomes = os.getloadavg()[0] / len(os.sched_getaffinity(0)), {}
        for where, took in seconds.items():
            outcomes[where] = "right" if took <= RIGHT_SECONDS else f"late, load {load:.0f}x" if load > BUSY else "late"
            self.add(fault, where, outcomes[where], took)
        late = {where: round(seconds[where], 1) for where, outcome in outcomes.items() if outcome == "late"}
        assert not late, f"{fault}: right again only after {late} s"


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture(scope="session")
def house(tmp_path_factory) -> Iterator[House]:
    found = House(tmp_path_factory.mktemp("house") / "data")
    try:
        found.start()
        found.furnish()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def cast(house) -> Cast:
    return Cast(house)


@pytest.fixture(autouse=True)
def nothing_stays_armed(request) -> Iterator[None]:
    yield
    if "house" in request.fixturenames:
        request.getfixturevalue("house").disarm()


def pytest_collection_modifyitems(config, items):
    """Cells marked `full` belong to the whole matrix only; those marked `sample` are there in a longer form."""
    absent = "sample" if config.getoption("--full-matrix") else "full"
    left_out = [item for item in items if item.get_closest_marker(absent)]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With a cell that failed, what every process last said."""
    report = yield
    if report.failed:
        for found in (value for value in item.funcargs.values() if isinstance(value, House)):
            for log in sorted((found.folder / "logs").glob("*.log")):
                report.sections.append((f"{found.folder.name}: {log.name}", last_lines(log, count=25)))
    return report


def pytest_terminal_summary(terminalreporter):
    if not ROWS:
        return
    terminalreporter.section("faults: cells and outcomes")
    width = max(len(fault) for fault, *_ in ROWS)
    for fault, where, outcome, seconds in ROWS:
        took = "" if seconds is None else f"{seconds:6.1f} s"
        terminalreporter.line(f"{fault:<{width}}  {where:<22} {outcome:<12} {took}")
    measured = [seconds for *_, seconds in ROWS if seconds is not None]
    if measured:
        terminalreporter.line(f"{len(ROWS)} cells; right again after at most {max(measured):.1f} s")
    folder = Path(os.environ.get("MUSTER_ARTIFACTS", ROOT / "artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = [dict(zip(("fault", "where", "outcome", "seconds"), row, strict=True)) for row in ROWS]
    (folder / "faults.json").write_text(json.dumps({"at": time.time(), "cells": rows}, indent=1) + "\n")
