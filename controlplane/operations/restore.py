"""muster-server restore: an archive of `backup` becomes an installation, in a database without people's work in it.

All rows are one transaction, which is committed when the last byte was read and the archive proved to be whole; until
then the database is as it was. Only tables of another release are created before it, empty. Files are written before, and
written again if it is repeated.
"""

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, LiteralString

from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from common.db.leadership import Leadership
from jobs.models import Job

from . import migrating, restored_jobs
from .archive import FILES, TABLES, ArchiveEntry, BadArchive, Reader
from .backup import fingerprint, named

# Numbers of jobs that were given after the backup are on people's screens and in their notes: they are not given again.
JOBS_GO_ON = 1000
_NO_HURRY = (
    "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; SET CONSTRAINTS ALL DEFERRED"
)
# Functions of triggers, which migrations created; not those that belong to an extension.
_FUNCTIONS = """
    SELECT proname FROM pg_proc p
    WHERE pronamespace = current_schema()::regnamespace AND proowner = current_user::regrole
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
"""
_IN_USE: dict[str, tuple[str, LiteralString]] = {
    "jobs_job": ("jobs", "true"),
    "workspaces_workspace": ("workspaces", "true"),
    "accounts_user": ("people who have signed in", "last_login IS NOT NULL"),
}


def restore(archive: Reader, *, say: Callable[[str], None]) -> Iterator[str]:
    """Restore into the database and the store of the settings; yields what was done, once all of it is.

    Raises BadArchive, DatabaseError, and MigrationFailed where the archive is of a release before. Without the last, no row
    was changed; after it, `muster-server migrate` ends what is left.
    """
    _check_key(archive)
    _check_release(archive)
    migrating.wait_for_server(say=say)
    lead = Leadership("migrate")
    lead.wait(threading.Event())
    try:
        _check_unused()
        _bring_tables_to(_state(archive), say=say)
        missing = migrating.pending()  # where the archive is of a release before
        try:
            lines = _load(archive, then=restored_jobs.hold if missing else restored_jobs.expect)
        except BaseException:
            if missing:  # the tables are empty then, but processes of this release can start
                with suppress(migrating.MigrationFailed):
                    migrating.apply(missing)
            raise
        if missing:
            migrating.apply(missing)
            restored_jobs.release()
            lines.append("the tables were brought up to date")
        yield from lines
    finally:
        lead.give_up()
        connections.close_all()


def _check_key(archive: Reader) -> None:
    known = {fingerprint(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)}
    if archive.about["key"] in known:
        _check_old_keys(archive, known)
        return
    way = (
        "`muster-server restore --print-key FILE` prints it: set it as MUSTER_SECRET_KEY"
        if archive.keys
        else "the backup was made without it: set that key as MUSTER_SECRET_KEY"
    )
    raise BadArchive(
        "MUSTER_SECRET_KEY is not the key of the backup, without which secrets of jobs cannot be read and agents that "
        f"still run are refused; {way} (docs/backup.md)"
    )


def _check_old_keys(archive: Reader, known: set[str]) -> None:
    """Refuse to go on without keys that second factors, webhooks and secrets of jobs may still be sealed with."""
    old = archive.about.get("old_keys")  # missing in what earlier releases wrote
    if old is None:
        old = [fingerprint(one) for one in archive.keys.get("old", [])]
    if not (missing := sum(one not in known for one in old)):
        return
    way = (
        "`muster-server restore --print-old-keys FILE` prints them: set MUSTER_OLD_SECRET_KEYS to that"
        if archive.keys
        else "the backup was made without them: set MUSTER_OLD_SECRET_KEYS as it was then"
    )
    raise BadArchive(
        f"MUSTER_OLD_SECRET_KEYS lacks {missing} of {len(old)} earlier keys of the backup, without which second factors, "
        f"webhooks and secrets of jobs that were sealed with them cannot be read; {way} (docs/backup.md)"
    )


def _check_release(archive: Reader) -> None:
    """Refuse what a newer release wrote: its tables are unknown here."""
    known = set(MigrationLoader(None).disk_migrations or {})  # without the database, which may still be away
    newer = [f"{app}.{name}" for app, name in _state(archive) if (app, name) not in known]
    if newer:
        raise BadArchive(
            f"the backup is of release {archive.about['release']}, whose migration {newer[0]} is unknown here: "
            "restore it with that release or a newer one"
        )


def _check_unused() -> None:
    """Refuse a database that somebody works with. What a first start creates is replaced."""
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for table, (what, condition) in _IN_USE.items():
            if table not in there:
                continue
            cursor.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(table), sql.SQL(condition))
            )
            if count := cursor.fetchone()[0]:
                raise BadArchive(
                    f"the database has {count} {what}; a backup is restored into an empty one: create another database "
                    "and name it in DATABASE_URL"
                )


def _state(archive: Reader) -> set[tuple[str, str]]:
    return {(app, name) for app, name in archive.about["migrations"]}


def _bring_tables_to(wanted: set[tuple[str, str]], *, say: Callable[[str], None]) -> None:
    """Create the tables as they were when the backup was made. Tables of another release are dropped: nobody uses them."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    if applied == wanted:
        return
    if applied:
        say("the tables are emptied; if this fails, muster-server migrate --first-admin NAME makes an administrator")
    with transaction.atomic(), connection.cursor() as cursor:
        for table in ("django_migrations", *_tables()):
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(table)))
        cursor.execute(_FUNCTIONS)
        for (function,) in cursor.fetchall():
            cursor.execute(sql.SQL("DROP FUNCTION {}").format(sql.Identifier(function)))
    executor = MigrationExecutor(connection)
    executor.migrate(_newest(executor, wanted))


def _newest(executor: MigrationExecutor, wanted: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of the wanted migrations that no other one of their app follows."""
    graph = executor.loader.graph
    followed = {
        parent.key
        for key in wanted
        if key in graph.node_map
        for parent in graph.node_map[key].parents
        if parent.key[0] == key[0]
    }
    return [key for key in graph.nodes if key in wanted - followed]


def _tables() -> list[str]:
    return connection.introspection.django_table_names(only_existing=True, include_views=False)


def _load(archive: Reader, *, then: Callable[[dict[str, Any]], int]) -> list[str]:
    """Load all rows and files; return what was done.

    `then` ends the transaction, before anybody else sees a row, and counts replicas that may still run.
    """
    about = archive.about
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_NO_HURRY)
        if unknown := set(about["tables"]) - set(_tables()):
            raise BadArchive(f"{min(unknown)} is no table of release {about['release']}")
        _empty(cursor)
        loading = _Loading(cursor, about["tables"])
        for entry in archive.entries():
            loading.take(entry)
        for table, (column, last) in about["sequences"].items():
            _go_on(cursor, table, column, last=last)
        _compare(archive, loading)
        count = then(about)
    rows = sum(loading.rows.values())
    lines = [f"{rows} rows of {len(about['tables'])} tables and {loading.files} files, of {about['at']}"]
    if missing := archive.counts["missing"]:
        lines.append(f"{len(missing)} files were missing already when the backup was made")
    running = f"{count} replicas may still be running; their agents are expected" if count else "no job was running"
    return [*lines, running]


def _empty(cursor: Any) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, _tables()))
    cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))


class _Loading:
    """Takes entries in whatever order they come."""

    def __init__(self, cursor: Any, tables: dict[str, list[str]]):
        self._cursor, self._tables = cursor, tables
        self.rows = dict.fromkeys(tables, 0)
        self.files = 0

    def take(self, entry: ArchiveEntry) -> None:
        if entry.name.startswith(TABLES) and (table := entry.name.split("/")[1]) in self._tables:
            self._take_rows(table, entry.content.read())
        elif entry.name.startswith(FILES):
            self._take_file(entry.name.removeprefix(FILES), entry)
        else:
            raise BadArchive(f"{entry.name} is unknown to this release")

    def _take_rows(self, table: str, packed: bytes) -> None:
        try:
            rows = zlib.decompress(packed)
        except zlib.error as error:
            raise BadArchive(f"the archive is damaged: rows of {table}: {error}") from error
        with self._cursor.copy(named("COPY {} ({}) FROM STDIN", table, self._tables[table])) as copy:
            copy.write(rows)
        self.rows[table] += self._cursor.rowcount

    def _take_file(self, name: str, entry: ArchiveEntry) -> None:
        try:
            saved = default_storage.save(name, File(entry.content, name=name))
        except SuspiciousFileOperation as error:
            raise BadArchive(f"{name} is no name of a stored file") from error
        if saved != name:
            raise BadArchive(f"the store keeps {name} as {saved}, where no row would find it")
        self.files += 1


def _go_on(cursor: Any, table: str, column: str, *, last: int) -> None:
    """Let a table's numbers go on behind the last one given before the backup."""
    last += JOBS_GO_ON if table == Job._meta.db_table else 0
    cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)", [table, column, max(1, last), last > 0])


def _compare(archive: Reader, loading: _Loading) -> None:
    if archive.counts["rows"] != loading.rows or archive.counts["files"] != loading.files:
        raise BadArchive("the archive does not hold what its end says")
