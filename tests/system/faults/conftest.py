"""The table of faults and recovery times, and the installation that most of these tests share."""

import bisect
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.files import last_lines
from tests.system.faults.installation import RIGHT_SECONDS, ROOT, RunningInstallation, furnished
from tests.system.faults.phase_jobs import PhaseJobs

PRESSURES = Path("/proc/pressure/cpu"), Path("/proc/pressure/io")
LOOK_SECONDS = 0.25
ROWS: list[tuple[str, str, str, float | None]] = []  # fault, where, outcome, seconds


class Pressure(threading.Thread):
    """Seconds in which a process on this machine waited for CPU or disk, as counted by the kernel.

    Source: Documentation/accounting/psi, the line `some`.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._looks: list[tuple[float, tuple[float, ...]]] = [self._look()]

    def run(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            self._looks.append(self._look())

    def between(self, begin: float, end: float) -> float:
        """The longer of the two, since they overlap by an unknown amount."""
        return max(after - before for before, after in zip(self._at(begin), self._at(end), strict=True))

    def _at(self, moment: float) -> tuple[float, ...]:
        return self._looks[max(0, bisect.bisect_right(self._looks, moment, key=lambda look: look[0]) - 1)][1]

    def _look(self) -> tuple[float, tuple[float, ...]]:
        return time.time(), tuple(map(_total, PRESSURES))


def _total(pressure: Path) -> float:
    """0 if the kernel does not count: then all time counts as Muster's own."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(pressure.read_text().split("\n")[0].rpartition("total=")[2]) / 1e6
    return 0.0


class Matrix:
    """Collects the results of all cells."""

    def __init__(self) -> None:
        self._pressure = Pressure()
        self._pressure.start()

    def add(self, fault: str, where: str, outcome: str, seconds: float | None = None) -> None:
        ROWS.append((fault, where, outcome, seconds))

    def add_all(self, fault: str, seconds: dict[str, float], *, since: float | None = None) -> None:
        """Time spent waiting for CPU or disk does not count: the promise assumes a machine with a free core.

        `since` is the end of the fault; without it, call this as soon as the last job has recovered.
        """
        since, late = since or time.time() - max(seconds.values()), {}
        for where, took in seconds.items():
            waited = self._pressure.between(since, since + took)
            if took - waited > RIGHT_SECONDS:
                late[where] = f"{took:.1f} s, of which {waited:.1f} s without a core"
            self.add(fault, where, "late" if where in late else "right", took)
        assert not late, f"{fault}: right again only after {late}"


@pytest.fixture(scope="session")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture(scope="session")
def installation(tmp_path_factory) -> Iterator[RunningInstallation]:
    with furnished(tmp_path_factory.mktemp("installation") / "data") as found:
        yield found


@pytest.fixture
def old(tmp_path) -> Iterator[RunningInstallation]:
    """An installation that only this test has: to be upgraded, or to be lost."""
    with furnished(tmp_path / "old") as found:
        yield found


@pytest.fixture(scope="module")
def phase_jobs(installation) -> PhaseJobs:
    return PhaseJobs(installation)


@pytest.fixture(autouse=True)
def nothing_stays_armed(request) -> Iterator[None]:
    yield
    if "installation" in request.fixturenames:
        request.getfixturevalue("installation").disarm()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Append the last log lines of every process to the report of a failed cell."""
    report = yield
    if report.failed:
        for found in (value for value in item.funcargs.values() if isinstance(value, RunningInstallation)):
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
