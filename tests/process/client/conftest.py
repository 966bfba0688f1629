"""A fake server, a clean environment, and the command line run within this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster.cli import cli
from muster.client import Client
from muster.http.config import Config, Server, save

from tests.process.client.fake import TOKEN, USER, FakeMuster, serve

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test may read or change the configuration of the user who runs it."""
    for name in ("MUSTER_URL", "MUSTER_TOKEN", "MUSTER_SERVER", "MUSTER_QUEUE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config" / "config.json"
    monkeypatch.setenv("MUSTER_CONFIG", str(path))
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache" / "sent"))
    return path


@pytest.fixture
def muster() -> Iterator[FakeMuster]:
    fake = FakeMuster()
    server = serve(fake)
    yield fake
    server.shutdown()
    server.server_close()


@pytest.fixture
def logged_in(muster: FakeMuster, config_file: Path) -> FakeMuster:
    save(Config("lab", {"lab": Server(muster.url, TOKEN, USER)}), path=config_file)
    return muster


@pytest.fixture
def client(logged_in: FakeMuster) -> Iterator[Client]:
    """A client that does not pause between retries."""
    with Client(sleep=lambda seconds: None) as client:
        yield client


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `muster ARGUMENTS...` in this process, without pauses between polls of a log."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return lambda *arguments, **options: _runner().invoke(cli, [str(word) for word in arguments], **options)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    return folder


def _runner() -> CliRunner:
    """Return a runner that separates stderr; click before 8.2, the last for Python 3.9, needs an option for it."""
    wants_asking = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(mix_stderr=False) if wants_asking else CliRunner()
