"""Fixtures of the security tests: rate limits that do not carry over between tests."""

import pytest

from common.limits.rates import Buckets
from controlplane.edge import rates


@pytest.fixture(autouse=True)
def fresh_buckets(monkeypatch):
    """Requests of one test do not count for the next, and no bucket refills while a slow test runs."""
    monkeypatch.setattr(rates, "buckets", Buckets(clock=lambda: 0.0))
