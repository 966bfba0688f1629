"""People, a job and its agents, and the ways in which each of them can knock."""

import pytest

from controlplane import rates


@pytest.fixture(autouse=True)
def fresh_buckets(monkeypatch):
    """What one test asked does not count for the next."""
    monkeypatch.setattr(rates.buckets, "known", {})
