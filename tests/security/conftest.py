"""People, a job and its agents, and the ways in which each of them can knock."""

import pytest
from django.test import Client

from controlplane import rates


@pytest.fixture(autouse=True)
def fresh_buckets(monkeypatch):
    """What one test asked does not count for the next."""
    monkeypatch.setattr(rates.buckets, "known", {})


@pytest.fixture
def as_():
    def sign_in(user) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in
