"""Times are read as Postgres means them, by whichever parser."""

from datetime import UTC, datetime

import pytest
from django.db import connection, models
from django.db.models.functions import Now
from psycopg.types.datetime import TimestamptzLoader

from common.db import db_times
from queues.models import Queue

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin"])
@pytest.mark.parametrize(
    "text", ["2026-11-25 15:31:00.123456+00", "2026-11-25 15:31:00+00", "1999-12-31 23:59:59.5+00", "0001-01-02 00:00:00+00"]
)  # fmt: skip
def test_a_time_is_read_in_utc_whatever_the_sessions_zone(zone, text):
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL TIME ZONE '{zone}'")
        cursor.execute("SELECT %s::timestamptz", [text])
        (found,) = cursor.fetchone()
        cursor.execute("SET LOCAL TIME ZONE 'UTC'")
    assert found == datetime.fromisoformat(text) and found.tzinfo is UTC


def test_another_style_of_dates_is_read_by_psycopg(monkeypatch):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL DateStyle = 'German'")
        cursor.execute("SELECT now()")
        with pytest.raises(NotImplementedError):  # psycopg says that it cannot; a wrong time would be worse
            cursor.fetchone()


def test_djangos_queries_use_it(queue, monkeypatch):
    def refuse(*_):
        raise AssertionError("psycopg's own parser")

    monkeypatch.setattr(TimestamptzLoader, "load", refuse)
    (found,) = Queue.objects.annotate(now=models.ExpressionWrapper(Now(), models.DateTimeField())).values_list(
        "now", flat=True
    )
    assert found.tzinfo is UTC and abs((datetime.now(UTC) - found).total_seconds()) < 3600
    assert connection.connection.adapters.get_loader(1184, 0) is db_times.TimeLoader
