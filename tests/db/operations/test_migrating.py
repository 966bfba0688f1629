"""muster-server migrate: what is in its way is one line, nothing is half done, and it can be repeated."""

import re

from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState
from django.db.models import signals

from controlplane.operations import migrating, restored_jobs
from controlplane.telemetry import metrics
from embedded.ports import free_port
from tests.support.older_postgres import OlderPostgres

CUT_OFF_INDEXES = (
    "UPDATE pg_index SET indisvalid = false FROM pg_class WHERE pg_class.oid = indexrelid AND relname = ANY(%s)"
)


def test_a_migration_that_fails_is_one_line_and_can_be_repeated(bare):
    """In the way of it is a table of the same name, as another program in the same database may have one."""
    bare.database.create()
    bare.database.run("CREATE TABLE queues_ceiling (mine integer)")
    code, said = bare.run("migrate")
    assert code == 1
    assert re.match(
        r"Error: migration queues\.\d{4}_\w+ failed and left nothing of itself: relation \S+ already exists",
        said.splitlines()[-1],
    )
    assert re.search(r"\d+ of \d+ migrations are applied; the release before runs with them", said)
    bare.database.run("DROP TABLE queues_ceiling")
    assert bare.run("migrate")[0] == 0
    assert bare.database.run("SELECT count(*) FROM queues_ceiling") == [(0,)]


def test_a_migration_that_is_not_a_transaction_can_be_cut_off_anywhere(bare):
    """Repeated after each of its operations, with indexes whose building was cut off too."""
    bare.database.create()
    with bare.entered():
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        state, begun = executor.migrate([], plan=[], state=ProjectState(real_apps=executor.loader.unmigrated_apps)), {}
        for step in plan:
            if not step[0].atomic:
                begun[str(step[0])] = cut_off(step[0], state)
            state = executor.migrate([], plan=[step], state=state)
    assert begun["jobs.0003_packed_logs"] == 4 and len(begun) >= 5
    assert bare.database.run("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid") == []
    code, said = bare.run("migrate")
    assert code == 0 and said.splitlines()[-1] == "the tables are up to date"


def cut_off(migration: Migration, state: ProjectState) -> int:
    """Begin a migration again after its first operation, after its first two, and so on; returns how often."""
    for count in range(1, len(migration.operations) + 1):
        part = Migration(migration.name, migration.app_label)
        part.operations = migration.operations[:count]
        with connection.schema_editor(atomic=False) as editor:
            part.apply(state.clone(), editor)
        with connection.cursor() as cursor:
            cursor.execute(CUT_OFF_INDEXES, [[one.index.name for one in part.operations if hasattr(one, "index")]])
    return len(migration.operations)


def test_a_migration_may_idle_between_its_statements(bare):
    bare.database.create()
    seen = []

    def look(**_):
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            seen.extend(cursor.fetchone())

    with bare.entered():
        with connection.cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 4000")
        signals.pre_migrate.connect(look)
        try:
            migrating.apply([])
        finally:
            signals.pre_migrate.disconnect(look)
    assert set(seen) == {"0"}


def test_a_migration_gives_up_waiting_when_it_is_told_to(bare):
    """As that of `helm upgrade`, which must end before helm does, and say why."""
    code, said = bare.run("migrate", "--within", "1")
    assert code == 1
    assert re.match(
        r"Error: gave up waiting: Postgres cannot be used: .* The tables are unchanged", said.splitlines()[-1]
    )


def test_a_postgres_of_an_older_major_is_named_and_its_tables_stay(bare):
    bare.database.create()
    with OlderPostgres(bare.database.url, says="13") as older:
        with bare.entered(url=older.url):
            said = migrating.obstacle(with_tables=True)
            assert said == "Postgres is version 13; Muster needs 14 or newer: upgrade the server"
        code, said = bare.run("migrate", "--within", "1", url=older.url)
        assert code == 1 and said.splitlines()[-1].startswith("Error: gave up waiting: Postgres is version 13")
    assert bare.database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_people_that_are_there_already_get_no_first_administrator(place):
    code, said = place.run("migrate", "--first-admin", "ada")
    assert code == 0 and re.search(r"first administrator: ada signs in with \S+ within 14 days", said)
    code, said = place.run("migrate", "--first-admin", "eve")
    assert code == 0
    assert said.splitlines()[-2:] == [
        "the tables are up to date",
        "there are people already: no administrator was created",
    ]


def test_a_restoration_that_was_cut_off_keeps_processes_waiting(place):
    with place.entered():
        assert migrating.obstacle(with_tables=True) is None
        restored_jobs.hold({"at": "now", "release": "0"})
        assert "a restoration of this database was cut off" in migrating.obstacle(with_tables=True)
    assert "a restoration that was cut off is finished" in place.run("migrate")[1]
    with place.entered():
        assert migrating.obstacle(with_tables=True) is None


def test_a_scrape_does_not_wait_for_a_database_that_is_away(place):
    """Prometheus gives up after ten seconds; a connection of the pool is waited for ten minutes here, longer than the test."""
    with place.entered(url=f"postgres://nobody@127.0.0.1:{free_port()}/none"):
        pool = connection.settings_dict["OPTIONS"]["pool"]
        kept, pool["timeout"] = pool["timeout"], 600
        try:
            told = [(one.name, one.value) for family in metrics.RowMetrics().collect() for one in family.samples]
        finally:
            pool["timeout"] = kept
    assert told == [("muster_database_up", 0.0)]
