"""People, a job and its agents, and the ways in which each of them can knock."""

import pytest

from common.rates import Buckets
from controlplane import rates


@pytest.fixture(autouse=True)
def fresh_buckets(monkeypatch):
    """What one test asked does not count for the next, and no bucket fills again while a test is slow."""
    monkeypatch.setattr(rates, "buckets", Buckets(clock=lambda: 0.0))
