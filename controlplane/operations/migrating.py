"""Wait for a database that can be used, and bring its tables up to date."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, OperationalError, connections
from django.db.migrations.exceptions import MigrationSchemaMissing
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from accounts import people
from common.db.leadership import Leadership, own_connection
from common.errors import InvalidInput

from . import restored_jobs

OLDEST_POSTGRES = 14  # Django 5.2, databases
LOOK_SECONDS = 1.0
REPEAT_SECONDS = 60.0  # how often the same reason for waiting is repeated


class MigrationFailed(Exception):
    """Why the tables could not be changed, and what holds now."""


def wait_until_usable(*, say: Callable[[str], None]) -> None:
    """Block until Postgres answers, is new enough and has all tables of this release. Tables of a newer one are fine."""
    _wait(lambda: obstacle(with_tables=True), say)


def wait_for_server(*, say: Callable[[str], None]) -> None:
    """Block until Postgres answers and is new enough, whatever is in the database."""
    _wait(lambda: obstacle(with_tables=False), say)


def obstacle(*, with_tables: bool) -> str | None:
    """Return what keeps the database from being used, in one line; None if nothing does."""
    try:
        with own_connection() as session:
            version = session.info.server_version // 10_000
        if version < OLDEST_POSTGRES:
            return f"Postgres is version {version}; Muster needs {OLDEST_POSTGRES} or newer: upgrade the server"
        missing = pending() if with_tables else []
        is_held = with_tables and not missing and restored_jobs.held()
    except (psycopg.OperationalError, DatabaseError, ImproperlyConfigured, MigrationSchemaMissing) as error:
        return f"Postgres cannot be used: {_one_line(error)}"
    finally:
        connections.close_all()
    if missing:
        return f"the database misses {len(missing)} migrations, first {missing[0]}: run muster-server migrate"
    if is_held:
        return "a restoration of this database was cut off: run muster-server migrate, which ends it"
    return None


def pending() -> list[str]:
    """Return the migrations of this release that were not applied, as app.name; raises DatabaseError."""
    executor = MigrationExecutor(connections["default"])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def migrate(*, first_admin: str | None, say: Callable[[str], None], within: float | None = None) -> Iterator[str]:
    """Apply what is missing, one process at a time; yields what was done. Raises MigrationFailed.

    Each migration is a transaction of its own, so one that fails leaves nothing of itself. Only those that build
    indexes beside running processes are not, and their steps can be repeated (common/db/migration_operations.py).
    `within`: for how many seconds it waits for Postgres and for its turn; None for without end.
    """
    end = None if within is None else time.monotonic() + within
    _wait(lambda: obstacle(with_tables=False), say, end=end)
    lead = Leadership("migrate")
    try:
        _wait_for_turn(lead, end)
        missing = _wait_for_pending(say, end)
        apply(missing)
        yield f"{len(missing)} migrations applied" if missing else "the tables are up to date"
        if restored_jobs.release():
            yield "a restoration that was cut off is finished: jobs go on"
        if first_admin:
            yield _first_admin(first_admin)
    finally:
        lead.give_up()
        connections.close_all()


def apply(missing: list[str]) -> None:
    """Apply what is `pending`; raises MigrationFailed. The caller is the only one that does (Leadership "migrate")."""
    try:
        with _without_hurry():
            call_command("migrate", verbosity=0, interactive=False)
    except Exception as error:  # whatever a migration raises: its reader needs one line, not where it came from
        raise MigrationFailed(_what_holds(missing, error)) from error


@contextlib.contextmanager
def _without_hurry() -> Iterator[None]:
    """Lift the limit on idle transactions: between two statements Django renders its models, which may take seconds.

    Elsewhere an idle transaction belongs to a process that was stopped (common/addresses.py).
    """
    with connections["default"].cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 0")
    try:
        yield
    finally:
        with contextlib.suppress(DatabaseError), connections["default"].cursor() as cursor:
            cursor.execute("RESET idle_in_transaction_session_timeout")


def _wait_for_turn(lead: Leadership, end: float | None) -> None:
    stop = threading.Event()
    if end is not None:
        timer = threading.Timer(max(0.0, end - time.monotonic()), stop.set)
        timer.daemon = True
        timer.start()
    if not lead.wait(stop):
        raise MigrationFailed("gave up waiting: another process migrates this database. The tables are unchanged")


def _wait_for_pending(say: Callable[[str], None], end: float | None) -> list[str]:
    """Return what is missing. The server answered before; another one or a name service that starts may come between."""
    found: list[str] = []

    def reason() -> str | None:
        try:
            found[:] = pending()
        except OperationalError as error:
            connections.close_all()
            return f"Postgres cannot be used: {_one_line(error)}"
        return None

    _wait(reason, say, end=end)
    return found


def _what_holds(missing: list[str], error: Exception) -> str:
    try:
        left = pending()
    except DatabaseError as gone:
        return f"the database went away while it was migrated: {_one_line(gone)}. Run migrate again; it goes on where it was"
    failed, done = left[0] if left else missing[-1], len(missing) - len(left)
    holds = "left nothing of itself" if _is_transaction(failed) else "can be repeated from where it was"
    why = (
        _one_line(error)
        if isinstance(error, DatabaseError | CommandError)
        else f"{type(error).__name__}: {_one_line(error)}"
    )
    return (
        f"migration {failed} failed and {holds}: {why}. "
        f"{done} of {len(missing)} migrations are applied; the release before runs with them. Mend the cause and run migrate again"
    )


def _is_transaction(name: str) -> bool:
    return MigrationLoader(None).get_migration(*name.split(".", 1)).atomic


def _first_admin(name: str) -> str:
    try:
        password = people.make_first(username=name)
    except InvalidInput as error:
        raise MigrationFailed(f"--first-admin: {error}") from error
    if password is None:
        return "there are people already: no administrator was created"
    days = people.FIRST_PASSWORD.days
    return f"first administrator: {name} signs in with {password} within {days} days, then chooses a password"


def _wait(reason: Callable[[], str | None], say: Callable[[str], None], *, end: float | None = None) -> None:
    """Block until there is no reason to; raises MigrationFailed at `end`, a time of the monotonic clock."""
    last, at = "", 0.0
    while now := reason():
        if end is not None and time.monotonic() >= end:
            raise MigrationFailed(f"gave up waiting: {now}. The tables are unchanged")
        if now != last or time.monotonic() > at + REPEAT_SECONDS:
            say(f"waiting: {now}")
            last, at = now, time.monotonic()
        time.sleep(LOOK_SECONDS)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
