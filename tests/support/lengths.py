"""A pytest plugin that reports, at the end of a longer run, the time of each folder of tests."""

import os
import time
from collections import defaultdict

import pytest

LONG_SECONDS = 60.0
_walls: dict[str, float] = defaultdict(float)
_cpus: dict[str, float] = defaultdict(float)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    folder = "/".join(item.nodeid.split("::")[0].split("/")[1:-1])
    wall, cpu = time.monotonic(), _cpu()
    try:
        return (yield)
    finally:
        _walls[folder] += time.monotonic() - wall
        _cpus[folder] += _cpu() - cpu


def pytest_terminal_summary(terminalreporter):
    if sum(_walls.values()) < LONG_SECONDS:
        return
    terminalreporter.section("seconds by folder, of which CPU of this process and of its children that ended")
    for folder, wall in sorted(_walls.items(), key=lambda one: -one[1]):
        terminalreporter.line(f"{folder:14} {wall:7.0f} {_cpus[folder]:7.0f}")


def _cpu() -> float:
    return sum(os.times()[:4])
