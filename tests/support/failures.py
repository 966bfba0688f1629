"""A pytest plugin: says each failure the moment it happens, for a run that is ended before its own summary."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if not report.failed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    said = crash.message if crash else str(report.longrepr)
    print(f"\n{report.nodeid} ({report.when}): {said[:2000]}", flush=True)
