"""Every process waits by itself for the database and its tables, and says for what; wrong settings are one line."""

import contextlib
import json
import re
import signal

import httpx
import psycopg
import pytest

from common.db.leadership import KEYS, NAMESPACE
from tests.process.server.conftest import until
from tests.support.older_postgres import OlderPostgres


def answers(server, path: str = "/healthz") -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_the_web_process_waits_for_the_database_then_for_its_tables(server, database):
    with server.start("web", "--host", "127.0.0.1", "--port", str(server.port)) as web:
        web.until_said("web: waiting: Postgres cannot be used: connection failed")
        assert f'database "{database.name}" does not exist' in web.said
        database.create()
        web.until_said("migrations, first ")
        assert "run muster-server migrate" in web.said
        assert web.said.count("waiting:") == 2 and "Traceback" not in web.said
        code, said = server.run("migrate", "--first-admin", "ada")
        assert code == 0 and re.search(r"^\d+ migrations applied$", said, re.M)
        password = re.search(r"first administrator: ada signs in with (\S+) within 14 days", said)[1]
        until(lambda: answers(server, "/readyz"))
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            client.get("/login")
            form = {"username": "ada", "password": password, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
            assert client.post("/login", data=form).status_code == 302
            assert client.get("/people").headers["Location"].startswith("/account/password")
        assert web.end() in (0, -signal.SIGTERM)  # uvicorn ends orderly, then raises the signal again
    code, said = server.run("migrate", "--first-admin", "eve")
    assert code == 0
    assert said.splitlines()[-2:] == [
        "the tables are up to date",
        "there are people already: no administrator was created",
    ]


def test_a_migration_that_fails_is_one_line_and_can_be_repeated(server, database):
    """In the way of it is a table of the same name, as another program in the same database may have one."""
    database.create()
    database.run("CREATE TABLE queues_ceiling (mine integer)")
    code, said = server.run("migrate")
    assert code == 1 and "Traceback" not in said
    assert re.match(
        r"Error: migration queues\.\d{4}_\w+ failed and left nothing of itself: relation \S+ already exists",
        said.splitlines()[-1],
    )
    assert re.search(r"\d+ of \d+ migrations are applied; the release before runs with them", said)
    database.run("DROP TABLE queues_ceiling")
    assert server.run("migrate")[0] == 0
    assert database.run("SELECT count(*) FROM queues_ceiling") == [(0,)]


def test_a_migration_that_is_not_a_transaction_can_be_cut_off_anywhere(server, database):
    """Repeated after each of its operations, with indexes whose building was cut off too."""
    database.create()
    said = server.execute("-m", "tests.process.server.repeating").splitlines()
    assert "jobs.0003_packed_logs 4" in said and len(said) >= 5
    assert database.run("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid") == []
    code, told = server.run("migrate")
    assert code == 0 and told.splitlines()[-1] == "the tables are up to date"


def test_a_migration_gives_up_waiting_when_it_is_told_to(server):
    """As that of `helm upgrade`, which must end before helm does, and say why."""
    code, said = server.run("migrate", "--within", "1")
    assert code == 1 and "Traceback" not in said
    assert re.match(
        r"Error: gave up waiting: Postgres cannot be used: .* The tables are unchanged", said.splitlines()[-1]
    )


def test_a_postgres_of_an_older_major_is_named_and_waited_for(server, database):
    database.create()
    with OlderPostgres(database.url, says="13") as older:
        with server.start("tasks", DATABASE_URL=older.url) as tasks:
            tasks.until_said("tasks: waiting: Postgres is version 13; Muster needs 14 or newer: upgrade the server")
            code, said = server.run("migrate", "--within", "1", DATABASE_URL=older.url)
            assert code == 1 and said.splitlines()[-1].startswith("Error: gave up waiting: Postgres is version 13")
            assert tasks.is_running() and tasks.said.count("waiting:") == 1
    assert database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_a_database_that_goes_away_while_it_is_migrated_is_one_line(server, database):
    """Another session holds the name of a table, so that the migration waits; then the database is dropped."""
    database.create()
    with contextlib.closing(psycopg.connect(database.url)) as session:
        session.execute("CREATE TABLE queues_ceiling (mine integer)")  # in a transaction that stays open
        with server.start("migrate", MUSTER_DB_SECONDS="3") as migrate:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            until(lambda: database.run(waiting))
            database.drop()
            until(lambda: not migrate.is_running())
    last = migrate.said.splitlines()[-1]
    assert "the database went away while it was migrated" in last and "Run migrate again" in last
    assert "Traceback" not in migrate.said


def test_a_migration_waits_for_a_database_that_is_away_again_once_its_turn_has_come(server, database):
    database.create()
    with contextlib.closing(psycopg.connect(database.url, autocommit=True)) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", [NAMESPACE, KEYS["migrate"]])
        with server.start("migrate", MUSTER_DB_SECONDS="1") as migrate:
            turn = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%%pg_try_advisory_lock%%' AND datname = %s AND pid <> pg_backend_pid()"
            until(lambda: other.execute(turn, [database.name]).fetchone())
            database.let_in(False)
            other.execute("SELECT pg_advisory_unlock_all()")
            migrate.until_said("waiting: Postgres cannot be used: ")
            database.let_in(True)
            until(lambda: not migrate.is_running())
    assert "migrations applied" in migrate.said and "Traceback" not in migrate.said


def test_two_migrations_at_once_take_turns(server, database):
    database.create()
    with server.start("migrate", "--first-admin", "ada") as one, server.start("migrate", "--first-admin", "ada") as two:
        until(lambda: not one.is_running() and not two.is_running())
        said = one.said + two.said
    assert "Traceback" not in said
    assert sorted(re.findall(r"migrations applied|up to date|first administrator|people already", said)) == [
        "first administrator", "migrations applied", "people already", "up to date",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"MUSTER_SECRET_KEY": ""}, "MUSTER_SECRET_KEY is not set"),
        ({"MUSTER_CLUSTERS": "{"}, "MUSTER_CLUSTERS must be JSON of the form"),
        ({"MUSTER_CLUSTERS": '["lab"]'}, "MUSTER_CLUSTERS must be JSON of the form"),
        ({"DATABASE_URL": "mysql://db/muster"}, "DATABASE_URL must begin with postgres://"),
        (
            {"DATABASE_URL": "postgres://muster:pass:word@db:x/muster"},
            "DATABASE_URL: the port is no number up to 65535",
        ),
        ({"MUSTER_DB_POOL": "0"}, "MUSTER_DB_POOL is 0; it must be at least 1"),
        ({"MUSTER_RATE_USER": "many"}, "MUSTER_RATE_USER is 'many'; it must be a whole number, such as 6000"),
        ({"MUSTER_LOG_DAYS": "a week"}, "MUSTER_LOG_DAYS is 'a week'; it must be a number, such as 90"),
        ({"MUSTER_TRUSTED_PROXIES": "10.0.0.0/40"}, "MUSTER_TRUSTED_PROXIES: '10.0.0.0/40' does not appear to be"),
        ({"MUSTER_SECRET_KEY": "", "MUSTER_SECRET_KEY_FILE": "/nowhere"}, "MUSTER_SECRET_KEY_FILE names /nowhere"),
        ({"REDIS_URL": "redis://:pass/word@redis:6379/0"}, "REDIS_URL: the port is no number up to 65535"),
        ({"MUSTER_LOG_LEVEL": "loud"}, "MUSTER_LOG_LEVEL is loud; it must be one of debug, info, warning, error, critical"),
        ({"MUSTER_METRICS": "0.0.0.0:99999"}, "MUSTER_METRICS is 0.0.0.0:99999; it must be ADDRESS:PORT with a port up to"),
        ({"MUSTER_HTTPS": "enabled"}, "MUSTER_HTTPS is 'enabled'; it must be 1, true, yes or on, or else 0, false, no or off"),
        ({"MUSTER_PUBLIC_URL": "muster.example"}, "MUSTER_PUBLIC_URL is 'muster.example'; it must be what people type"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line(server, env, words):
    code, said = server.run("tasks", **env)
    assert code == 1 and words in said and len(said.splitlines()) == 1
    assert "word@" not in said and "pass/" not in said


@pytest.mark.parametrize("word", ["web", "tasks", "beat", "watcher", "migrate", "check"])
def test_each_process_and_task_refuses_a_wrong_setting(server, word):
    code, said = server.run(word, MUSTER_LOG_LEVEL="loud")
    assert code == 1 and said.startswith("Error: MUSTER_LOG_LEVEL is loud; ") and len(said.splitlines()) == 1


@pytest.mark.parametrize("word", ["web", "tasks", "beat", "watcher"])
def test_each_process_refuses_a_cluster_of_no_known_class(server, word):
    code, said = server.run(word, MUSTER_CLUSTERS='{"lab": {"BACKEND": "jobs.clusters.nothing.Here"}}')
    assert code == 1 and len(said.splitlines()) == 1, said
    assert "BACKEND of lab is jobs.clusters.nothing.Here, which cannot be used: No module named" in said


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"BACKEND": "json.dumps"}, "BACKEND of lab is json.dumps, which cannot be used: it is no class of a cluster"),
        ({"BACKEND": "Kubernetes"}, "BACKEND of lab is Kubernetes, which cannot be used: "),
        (
            {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": {"NAMESPACES": "a"}},
            "OPTIONS of lab cannot be used: OPTIONS.NAMESPACES",
        ),
        ({"BACKEND": "jobs.clusters.local.LocalCluster"}, "OPTIONS of lab cannot be used: "),
    ],
)
def test_a_cluster_that_can_never_be_used_is_refused(server, entry, words):
    code, said = server.run("watcher", MUSTER_CLUSTERS=json.dumps({"lab": entry}))
    assert code == 1 and words in said and len(said.splitlines()) == 1, said


def test_an_unknown_word_names_the_known_ones(server):
    code, said = server.run("worker")
    assert code == 2 and "No such command 'worker'" in said
    code, said = server.run("--help")
    assert code == 0 and all(
        word in said for word in ("web", "tasks", "beat", "watcher", "migrate", "check", "secrets")
    )


def test_what_serves_pages_loads_kubernetes_client_only_where_a_cluster_needs_it(server):
    """A third of what a web process would spend on its start, and 20 MB."""
    loaded = "import controlplane.asgi, controlplane.urls; print('kubernetes' in sys.modules)"
    code = f"import django, sys; django.setup(); {loaded}"
    assert server.execute("-c", code).strip() == "False"
