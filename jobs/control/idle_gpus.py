"""Add up for how long GPUs of running attempts are idle, which usage shows as wasted. Repeated by beat."""

from datetime import datetime

from django.db import connection

from common import faultpoints
from common.db import sql
from jobs.core.silence import IDLE_AFTER, SILENT

_NOTE = sql.load("jobs/sql/note_idle_gpus.sql")


def note(*, now: datetime) -> int:
    """Add what is idle now, since when that was done last. Return of how many attempts."""
    with faultpoints.atomic("idle.note"), connection.cursor() as cursor:
        cursor.execute(_NOTE, {"now": now, "still": now - IDLE_AFTER, "heard": now - SILENT})
        return int(cursor.rowcount)
