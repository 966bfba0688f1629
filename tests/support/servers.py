"""A pytest plugin: one real Postgres and one real Redis for the whole run.

Their addresses are known before Django reads its settings. They start after collection, and only if a test was
collected that may use them.
"""

import os
import tempfile
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections

from embedded.servers import Servers
from tests.support import template

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = ("unit", "project")  # levels that need neither
DATABASE = "test_muster"
reserved: list[tuple[tempfile.TemporaryDirectory, Servers]] = []


def environment(folder: Path, servers: Servers) -> dict[str, str]:
    """The variables by which Muster's settings find these servers and a temporary folder."""
    return {
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        "MUSTER_DATA_DIR": str(folder / "data"),
        "MUSTER_SECRET_KEY": "only for tests",
        "MUSTER_LOG_LEVEL": "WARNING",
        "MUSTER_LOCAL_SLOT_MIB": "0",  # jobs of tests are small, and other lanes take the memory
        "MUSTER_PUBLIC_URL": "http://testserver",
        "MUSTER_ALLOWED_HOSTS": "testserver,127.0.0.1,localhost",
        "MUSTER_CACHE": str(folder / "cache"),  # the client's cache, kept apart from the developer's own
    }


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, parser, args):
    folder = tempfile.TemporaryDirectory(prefix="muster-tests-")
    servers = Servers(Path(folder.name) / "servers", is_temporary=True, template=template.folder())
    servers.reserve()
    reserved.append((folder, servers))
    os.environ.update(environment(Path(folder.name), servers))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    if session.config.option.collectonly or all(level(item) in WITHOUT for item in session.items):
        return
    template.build()
    for _, servers in reserved:
        servers.start()


def level(item: pytest.Item) -> str:
    """The folder in tests/ that a test lies in; empty for tests elsewhere."""
    parts = item.path.relative_to(ROOT).parts if item.path.is_relative_to(ROOT) else ()
    return parts[1] if len(parts) > 1 and parts[0] == "tests" else ""


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment, django_db_blocker):
    """In place of pytest-django's: the tests' database is a copy of the template's, and no migration is even planned."""
    for _, servers in reserved:  # none where this plugin does not run: the settings name a database with tables then
        with psycopg.connect(servers.database_url, autocommit=True) as session:
            session.execute(f"CREATE DATABASE {DATABASE} TEMPLATE muster STRATEGY file_copy")
        settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = DATABASE
    yield
    with django_db_blocker.unblock():
        connections.close_all()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    for folder, servers in reserved:
        servers.stop()
        folder.cleanup()
    reserved.clear()
