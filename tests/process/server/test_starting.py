"""Every process waits by itself for the database and its tables, and says for what; wrong settings are one line."""

import contextlib
import re
import signal

import httpx
import psycopg
import pytest

from common.db.leadership import KEYS, NAMESPACE
from tests.process.server.conftest import in_django
from tests.support.patience import until

pytestmark = pytest.mark.ci


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
    database.create_with_tables()
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
    assert "the tables are up to date" in migrate.said and "Traceback" not in migrate.said


@pytest.mark.full  # the lock for which another one waits is held by a test above
def test_two_migrations_at_once_take_turns(server, database):
    database.create()
    with server.start("migrate", "--first-admin", "ada") as one, server.start("migrate", "--first-admin", "ada") as two:
        until(lambda: not one.is_running() and not two.is_running())
        said = one.said + two.said
    assert "Traceback" not in said
    assert sorted(re.findall(r"migrations applied|up to date|first administrator|people already", said)) == [
        "first administrator", "migrations applied", "people already", "up to date",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["web", "tasks", "beat", "watcher", "migrate", "check"])
def test_each_process_and_task_refuses_a_wrong_setting(server, word):
    code, said = server.run(word, MUSTER_LOG_LEVEL="loud")
    assert code == 1 and said.startswith("Error: MUSTER_LOG_LEVEL is loud; ") and len(said.splitlines()) == 1


def test_a_cluster_that_cannot_be_used_ends_a_process_before_it_waits(server):
    code, said = server.run("watcher", MUSTER_CLUSTERS='{"lab": {"BACKEND": "jobs.clusters.nothing.Here"}}')
    assert code == 1 and len(said.splitlines()) == 1, said
    assert "BACKEND of lab is jobs.clusters.nothing.Here, which cannot be used: No module named" in said


def test_what_no_setting_asks_for_is_not_imported(server, database):
    """Kubernetes' client would be a third of what a web process spends on its start, and 20 MB."""
    database.create_with_tables()
    found = in_django(
        server,
        """
        import sys
        import controlplane.asgi, controlplane.celery, controlplane.urls, jobs.tasks, jobs.control.watcher
        from django.test import Client
        from celery.signals import worker_init
        worker_init.send(sender=None)
        assert Client().get("/login", headers={"Host": "localhost"}).status_code == 200
        jobs.tasks.schedule.apply()
        names = ("opentelemetry", "google.protobuf", "kubernetes")
        print([name for name, module in sys.modules.items() if module and name.startswith(names)])
        """,
    )
    assert found.strip().endswith("[]")
