"""Wait for a database that can be used, and bring its tables up to date."""

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

from accounts import people
from common.errors import InvalidInput
from common.leadership import Leadership, own_connection

OLDEST_POSTGRES = 14  # Django 5.2, databases
LOOK_SECONDS = 1.0
REPEAT_SECONDS = 60.0  # how often the same reason for waiting is told


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
    except (psycopg.OperationalError, DatabaseError, ImproperlyConfigured, MigrationSchemaMissing) as error:
        return f"Postgres cannot be used: {_one_line(error)}"
    finally:
        connections.close_all()
    if missing:
        return f"the database misses {len(missing)} migrations, first {missing[0]}: run muster-server migrate"
    return None


def pending() -> list[str]:
    """Return the migrations of this release that were not applied, as app.name; raises DatabaseError."""
    executor = MigrationExecutor(connections["default"])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def migrate(*, first_admin: str | None, say: Callable[[str], None]) -> Iterator[str]:
    """Apply what is missing, one process at a time; yields what was done. Raises MigrationFailed.

    Each migration is a transaction of its own, so one that fails leaves nothing of itself.
    """
    wait_for_server(say=say)
    lead = Leadership("migrate")
    lead.wait(threading.Event())
    try:
        missing = _wait_for_pending(say)
        try:
            call_command("migrate", verbosity=0, interactive=False)
        except (DatabaseError, CommandError) as error:
            raise MigrationFailed(_what_holds(missing, error)) from error
        yield f"{len(missing)} migrations applied" if missing else "the tables are up to date"
        if first_admin:
            yield _first_admin(first_admin)
    finally:
        lead.give_up()
        connections.close_all()


def _wait_for_pending(say: Callable[[str], None]) -> list[str]:
    """Return what is missing. The server answered before; another one or a name service that starts may come between."""
    found: list[str] = []

    def reason() -> str | None:
        try:
            found[:] = pending()
        except OperationalError as error:
            connections.close_all()
            return f"Postgres cannot be used: {_one_line(error)}"
        return None

    _wait(reason, say)
    return found


def _what_holds(missing: list[str], error: Exception) -> str:
    try:
        left = pending()
    except DatabaseError as gone:
        return f"the database went away while it was migrated: {_one_line(gone)}. Run migrate again; it goes on where it was"
    done = len(missing) - len(left)
    return (
        f"migration {left[0] if left else missing[-1]} failed and left nothing of itself: {_one_line(error)}. "
        f"{done} of {len(missing)} migrations are applied; the release before runs with them. Mend the cause and run migrate again"
    )


def _first_admin(name: str) -> str:
    try:
        password = people.make_first(username=name)
    except InvalidInput as error:
        raise MigrationFailed(f"--first-admin: {error}") from error
    if password is None:
        return "there are people already: no administrator was created"
    days = people.FIRST_PASSWORD.days
    return f"first administrator: {name} signs in with {password} within {days} days, then chooses a password"


def _wait(reason: Callable[[], str | None], say: Callable[[str], None]) -> None:
    said, at = "", 0.0
    while now := reason():
        if now != said or time.monotonic() > at + REPEAT_SECONDS:
            say(f"waiting: {now}")
            said, at = now, time.monotonic()
        time.sleep(LOOK_SECONDS)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
