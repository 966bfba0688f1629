"""The services in docker-compose.yml: parsed as Compose does, and the command of Redis run unchanged."""

import os
import re
import stat
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
import yaml

from controlplane.operations import first_secrets
from embedded.binaries import find_binaries
from embedded.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docker-compose.yml").read_text()
INSTALL = (ROOT / "docs/install.md").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]


def test_secrets_come_from_files_and_none_has_a_default():
    assert not re.findall(r"\$\{\w*(?:PASSWORD|KEY|SECRET)\w*", TEXT)
    for name in ("migrate", "web", "tasks", "beat", "watcher"):
        given = SERVICES[name]["environment"]
        assert {"MUSTER_SECRET_KEY_FILE", "DATABASE_URL_FILE", "REDIS_URL_FILE"} <= set(given)
        assert given["MUSTER_OLD_SECRET_KEYS_FILE"] == "/run/keys/old_secret_keys"
        assert "keys-muster:/run/keys:ro" in SERVICES[name]["volumes"]


def test_no_password_stands_in_the_file():
    for name, service in SERVICES.items():
        for setting, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|_URL", setting) and "PUBLIC" not in setting:
                assert setting.endswith("_FILE") and value.startswith("/run/keys/"), (name, setting)
        assert not re.search(r"://[^/\s]*:[^/\s]*@", str(service)), name


def test_each_server_sees_its_own_password_only():
    for name in ("postgres", "redis"):
        keys = [one for one in SERVICES[name]["volumes"] if one.startswith("keys-")]
        assert keys == [f"keys-{name}:/run/keys:ro"]


def test_the_secrets_are_made_once_and_belong_together(tmp_path):
    lines = list(first_secrets.make(tmp_path))
    assert len(lines) == 5 and all(line.endswith("was written") for line in lines)
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert urlsplit(made["muster/database_url"]).password == made["postgres/password"]
    assert urlsplit(made["muster/redis_url"]).password == made["redis/password"]
    assert len({made["muster/secret_key"], made["postgres/password"], made["redis/password"]}) == 3
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o400 for name in made)
    list(first_secrets.make(tmp_path))
    assert {name: (tmp_path / name).read_text() for name in made} == made


def test_the_line_that_replaces_the_key_keeps_the_earlier_ones(tmp_path):
    """The line of docs/install.md, as its own shell runs it, but for the owner of the file."""
    (line,) = re.findall(r"^docker compose run .* secrets -c '(.*cat secret_key.*)'$", INSTALL, re.M)
    script = line.replace("/keys/muster", str(tmp_path / "muster")).replace("chown 10001:10001 new && ", "")
    keys = []
    for _ in range(3):
        list(first_secrets.make(tmp_path))
        keys.insert(0, (tmp_path / "muster/secret_key").read_text())
        subprocess.run(["sh", "-c", script], check=True)
        assert (tmp_path / "muster/old_secret_keys").read_text() == ",".join(keys)
        assert not (tmp_path / "muster/secret_key").exists()
    assert stat.S_IMODE((tmp_path / "muster/old_secret_keys").stat().st_mode) == 0o600


def test_an_interrupted_first_start_is_completed(tmp_path):
    list(first_secrets.make(tmp_path))
    (tmp_path / "muster/database_url").unlink()
    (tmp_path / "redis/password").unlink()
    list(first_secrets.make(tmp_path))
    password = (tmp_path / "redis/password").read_text()
    assert urlsplit((tmp_path / "muster/redis_url").read_text()).password == password


@pytest.fixture
def server(tmp_path):
    """Redis started with the command from the file, on a port of its own."""
    program = find_binaries(account=None, shelf=tmp_path / "shelf").redis
    port = free_port()
    wrapper = tmp_path / "redis-server"
    wrapper.write_text(f'#!/bin/sh\nexec {program} "$@" --port {port} --bind 127.0.0.1 --dir {tmp_path}\n')
    wrapper.chmod(0o755 | stat.S_IXUSR)
    (tmp_path / "password").write_text("0123456789abcdef")
    command = [
        word.replace("$$", "$").replace("/run/keys/password", str(tmp_path / "password"))
        for word in SERVICES["redis"]["command"]
    ]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
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
