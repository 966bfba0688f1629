"""A pytest plugin: one real Postgres and one real Redis for the whole run, before Django reads its settings."""

import os
import tempfile
from pathlib import Path

import pytest

from embedded.servers import Servers

running: list[tuple[tempfile.TemporaryDirectory, Servers]] = []


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config, parser, args):
    folder = tempfile.TemporaryDirectory(prefix="muster-tests-")
    servers = Servers(Path(folder.name) / "servers", is_temporary=True)
    servers.start()
    running.append((folder, servers))
    os.environ.update(
        DATABASE_URL=servers.database_url,
        REDIS_URL=servers.redis_url,
        MUSTER_DATA_DIR=str(Path(folder.name) / "data"),
        MUSTER_SECRET_KEY="only for tests",
        MUSTER_LOG_LEVEL="WARNING",
        MUSTER_PUBLIC_URL="http://testserver",
        MUSTER_ALLOWED_HOSTS="testserver,127.0.0.1,localhost",
        MUSTER_CACHE=str(Path(folder.name) / "cache"),  # the client's cache, kept apart from the developer's own
    )


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    for folder, servers in running:
        servers.stop()
        folder.cleanup()
    running.clear()
