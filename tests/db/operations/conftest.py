"""muster-server's tasks in this process, on databases and folders of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from django.test import override_settings

from controlplane.operations import server
from tests.support.databases import Database, working_on

KEY = "only-for-the-tests-of-muster-server-0000"
MEMORY = {"memory": {"BACKEND": "jobs.clusters.memory.MemoryCluster", "OPTIONS": {}}}  # of filling.py


@dataclass
class Place:
    """An installation without processes: a database, a folder, and settings."""

    data: Path
    database: Database = field(default_factory=Database)
    key: str = KEY
    old_keys: list[str] = field(default_factory=list)

    @contextmanager
    def entered(self, *, url: str = "", **settings: Any) -> Iterator[None]:
        """Let this process work with it; `settings` and `url`, the database's address, replace its own."""
        own = {
            "SECRET_KEY": self.key, "SECRET_KEY_FALLBACKS": self.old_keys, "DATA_DIR": self.data,
            "MEDIA_ROOT": self.data / "files", "CLUSTERS": MEMORY,
        }  # fmt: skip
        with working_on(url or self.database.url), override_settings(**{**own, **settings}):
            yield

    def run(self, *words: str, url: str = "", **settings: Any) -> tuple[int, str]:
        """Run a task of muster-server to its end; returns its exit code and what it said."""
        with self.entered(url=url, **settings):
            done = CliRunner().invoke(server.cli, words)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output


@pytest.fixture(autouse=True, scope="module")
def _unblocked(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def bare(tmp_path) -> Iterator[Place]:
    """One whose database does not exist yet."""
    place = Place(tmp_path / "data")
    yield place
    place.database.drop()


@pytest.fixture
def place(bare) -> Place:
    """One with tables and without rows."""
    bare.database.create_with_tables()
    return bare
