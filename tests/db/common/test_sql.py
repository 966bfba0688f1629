"""Every statement in a file is understood by Postgres, against the tables as the migrations leave them."""

import importlib
import re
from datetime import UTC, datetime

import pytest
from django.db import ProgrammingError, connection

from common.db import sql

pytestmark = pytest.mark.django_db
FILES = sorted(str(path.relative_to(sql.ROOT)) for path in sql.ROOT.glob("*/sql/*.sql"))
PARAMETER = re.compile(r"^--   (\w+\*?)  +([a-z0-9]+(?:\[\])?)(?:  .*)?$", re.M)
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
VALUES = {
    "bigint": 1, "int": 1, "float8": 1.5, "bool": True, "text": "a", "json": "[]", "timestamptz": datetime(2026, 11, 1, tzinfo=UTC),
    "bigint[]": [1, 2], "int[]": [1, 2], "text[]": ["a", "b"],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """Import the modules that read statements."""
    for app in {path.partition("/")[0] for path in FILES}:
        for path in (sql.ROOT / app).rglob("*.py"):
            if "sql.load(" in path.read_text():
                importlib.import_module(".".join(path.relative_to(sql.ROOT).with_suffix("").parts))


def documented(path: str) -> dict[str, str]:
    head = (sql.ROOT / path).read_text().partition("-- Parameters:\n")[2].partition("-- Fragments:\n")[0]
    return dict(PARAMETER.findall(head))


def value_of(name: str, types: dict[str, str]) -> object:
    """A plausible value. A default has the type of its column: null fits all."""
    return VALUES[types[name]] if name in types else None


def explain(path: str) -> None:
    types = documented(path)
    for text in sql.loaded[path]:
        given = {name: value_of(name, types) for name in PLACEHOLDER.findall(text)}
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {text}", given)
            assert cursor.fetchall()


@pytest.mark.parametrize("path", FILES)
def test_postgres_can_plan_it(path):
    explain(path)


@pytest.mark.parametrize("path", FILES)
def test_its_comment_names_each_parameter_and_nothing_else(path):
    types = documented(path)
    used = {name for text in sql.loaded[path] for name in PLACEHOLDER.findall(text)}
    defaults = {name for name in used if name.startswith("default_")}
    assert types.keys() - {"default_*"} == used - defaults
    assert ("default_*" in types) == bool(defaults)


def test_a_renamed_column_is_found():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_replica RENAME COLUMN batch_seq TO batch_number")
    with pytest.raises(ProgrammingError, match=r"column .*batch_seq.* does not exist"):
        explain("jobs/sql/write_batch.sql")
