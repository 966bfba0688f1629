"""A pytest plugin that prints each failure immediately, for runs that are ended before their summary."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if not report.failed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    said = crash.message if crash else str(report.longrepr)
    print(f"\n{report.nodeid} ({report.when}): {said[:2000]}", flush=True)
