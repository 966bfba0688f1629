"""The services in docker-compose.yml: parsed as Compose does, and the command of Redis run unchanged."""

import os
import re
import stat
import subprocess
import time
from pathlib import Path

import pytest
import redis
import yaml

from embedded.binaries import find_binaries
from embedded.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]


def test_no_password_has_a_default():
    named = re.findall(r"\$\{(\w*(?:PASSWORD|KEY)\w*)([^}]*)\}", TEXT)
    assert {name for name, _ in named} == {"MUSTER_SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"}
    assert all(rest.startswith(":?") for _, rest in named)
    assert "redis://:${REDIS_PASSWORD:?" in SERVICES["web"]["environment"]["REDIS_URL"]


@pytest.fixture
def server(tmp_path):
    """Redis started with the command from the file, on a port of its own."""
    program = find_binaries(account=None, shelf=tmp_path / "shelf").redis
    port = free_port()
    wrapper = tmp_path / "redis-server"
    wrapper.write_text(f'#!/bin/sh\nexec {program} "$@" --port {port} --bind 127.0.0.1 --dir {tmp_path}\n')
    wrapper.chmod(0o755 | stat.S_IXUSR)
    command = [word.replace("$$", "$") for word in SERVICES["redis"]["command"]]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": "0123456789abcdef"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    yield process, port
    process.terminate()
    process.wait(PATIENCE_SECONDS)


def test_redis_requires_the_password_and_its_command_line_does_not_show_it(server):
    process, port = server
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with redis.Redis(port=port, password="0123456789abcdef") as known:
                assert known.ping() and known.config_get("save") == {"save": ""}
                break
        except redis.exceptions.ConnectionError:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
    with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert b"redis-server" in words and b"0123456789abcdef" not in words
