"""muster-server backup: the rows of one moment, the files that they name, and the keys, as one archive.

Tables are copied by Postgres' COPY, so no program of Postgres is needed and the archive suits every version of it
(docs/adr/0029-backups-by-copy.md). Files follow when the transaction is over; none is deleted meanwhile
(common/files/file_deletion.py), and a file never changes once a row names it.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, LiteralString

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection, transaction
from django.utils import timezone
from psycopg import sql

from accounts.models import SignIn
from common.files import file_deletion
from jobs.logs import storage
from workspaces import files

from .archive import ABOUT, FILES, FORMAT, KEYS, TABLES, Writer

PIECE_BYTES = 8 * 2**20  # of rows, before they are compressed
LEVEL = 4  # of zlib
LEFT_OUT = frozenset({SignIn._meta.db_table})  # who is signed in: ended sessions must not come back
# This session reads for as long as it takes, and waits for whoever reads the archive.
_NO_HURRY = "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"


def write(out: IO[bytes], *, with_keys: bool, say: Callable[[str], None]) -> None:
    """Write an archive of this installation to `out`. Raises DatabaseError, and OSError where `out` or the store fails."""
    with Writer(out) as archive, file_deletion.paused(say=say):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(_NO_HURRY)
            tables = columns_of(cursor)
            archive.put_json(ABOUT, _about(cursor, tables, with_keys=with_keys))
            if with_keys:
                archive.put_json(KEYS, {"secret_key": settings.SECRET_KEY, "old": settings.SECRET_KEY_FALLBACKS})
            rows = {table: _copy(cursor, archive, table, columns=columns) for table, columns in tables.items()}
            names = [*storage.named(), *files.named()]
        say(f"{sum(rows.values())} rows of {len(rows)} tables, {len(names)} files follow")
        copied, missing = _copy_files(archive, names)
        archive.end(rows=rows, files=copied, missing=missing)
    for name in missing:
        say(f"missing in the store, as it was before: {name}")


def fingerprint(key: str) -> str:
    """Return a text by which a secret key is recognized and not found out."""
    return hashlib.blake2b(key.encode(), key=b"muster.backup", digest_size=12).hexdigest()


def columns_of(cursor: Any) -> dict[str, list[str]]:
    """Return the tables that are copied, with their columns."""
    there = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return {
        table: [one.name for one in connection.introspection.get_table_description(cursor, table)]
        for table in sorted(there)
        if table not in LEFT_OUT
    }


def _about(cursor: Any, tables: dict[str, list[str]], *, with_keys: bool) -> dict[str, Any]:
    cursor.execute("SELECT app, name FROM django_migrations ORDER BY id")
    return {
        "format": FORMAT,
        "release": settings.VERSION,
        "at": timezone.now().isoformat(),
        "key": fingerprint(settings.SECRET_KEY),
        "old_keys": [fingerprint(one) for one in settings.SECRET_KEY_FALLBACKS],
        "has_keys": with_keys,
        "migrations": [list(row) for row in cursor.fetchall()],
        "tables": tables,
        "sequences": {table: found for table in tables if (found := _sequence(cursor, table))},
    }


def _sequence(cursor: Any, table: str) -> list[Any]:
    """Return the column that a table numbers its rows in, and the last number given; empty if it has none."""
    for one in connection.introspection.get_sequences(cursor, table):
        cursor.execute(sql.SQL("SELECT last_value, is_called FROM {}").format(sql.Identifier(one["name"])))
        last, is_called = cursor.fetchone()
        return [one["column"], last if is_called else 0]
    return []


def named(statement: LiteralString, table: str, columns: Iterable[str]) -> sql.Composed:
    """Place a table and a list of its columns in a statement."""
    return sql.SQL(statement).format(sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns)))


def _copy(cursor: Any, archive: Writer, table: str, *, columns: list[str]) -> int:
    """Put one table into the archive, piece by piece. Return how many rows it has."""
    count = 0
    for number, (rows, piece) in enumerate(_pieces(cursor, table, columns), start=1):
        archive.put(f"{TABLES}{table}/{number:06d}", zlib.compress(piece, LEVEL))
        count += rows
    return count


def _pieces(cursor: Any, table: str, columns: list[str]) -> Iterator[tuple[int, bytes]]:
    rows, piece = 0, bytearray()
    with cursor.copy(named("COPY {} ({}) TO STDOUT", table, columns)) as copy:
        for row in copy:
            rows += 1
            piece += row
            if len(piece) >= PIECE_BYTES:
                yield rows, bytes(piece)
                rows, piece = 0, bytearray()
    if piece:
        yield rows, bytes(piece)


def _copy_files(archive: Writer, names: list[str]) -> tuple[int, list[str]]:
    """Put files into the archive. Return how many, and the names of those that are not there."""
    missing = []
    for name in names:
        try:
            with default_storage.open(name, "rb") as file:
                archive.put_file(f"{FILES}{name}", file, size=file.size)
        except FileNotFoundError:
            missing.append(name)
    return len(names) - len(missing), missing
