"""Signed-in browsers: `as_(people.viewer)` is a client of that user; `htmx` requests one part of a page."""

import pytest
from django.test import Client

from tests.support import seed


@pytest.fixture
def owner(as_, people) -> Client:
    return as_(people.owner)


@pytest.fixture
def job(lab):
    return seed.running(lab, name="mnist-ddp", steps=20)


@pytest.fixture
def htmx():
    def ask(client: Client, url: str, part: str):
        return client.get(url, headers={"HX-Request": "true", "HX-Target": part})

    return ask
