"""Databases beside the tests' own, on the same Postgres, for processes and for code that connects by itself."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections

from common import addresses

_ADDRESS = ("HOST", "PORT", "NAME", "USER", "PASSWORD")


class Database:
    """A name on the tests' Postgres; `create` makes it."""

    def __init__(self) -> None:
        self.name = f"server_{uuid.uuid4().hex[:12]}"
        self._server = os.environ["DATABASE_URL"]
        parts = urlsplit(self._server)
        self.url = parts._replace(path=f"/{self.name}").geturl()

    def create(self) -> None:
        self._act(f'CREATE DATABASE "{self.name}"')

    def create_with_tables(self) -> None:
        """As `create` and `muster-server migrate`: a copy of the template, which no other session may use meanwhile."""
        self._act(f'CREATE DATABASE "{self.name}" TEMPLATE muster STRATEGY file_copy')

    def drop(self) -> None:
        self._act(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def let_in(self, is_open: bool) -> None:
        """Accept new connections, or refuse them; open ones stay."""
        self._act(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS {is_open}')

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as session:
            done = session.execute(statement)
            return done.fetchall() if done.description else []

    def _act(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as session:
            session.execute(statement)


@contextmanager
def working_on(url: str) -> Iterator[None]:
    """Let Django in this process, all its threads included, work on the database of an address."""
    kept = {name: connection.settings_dict[name] for name in _ADDRESS}
    _move({name: value for name, value in addresses.database(url, pool=1).items() if name in _ADDRESS})
    try:
        yield
    finally:
        _move(kept)


def _move(address: dict[str, Any]) -> None:
    connections.close_all()
    connection.close_pool()
    connection.settings_dict.update(address)
    ContentType.objects.clear_cache()  # other numbers in another database
