"""How much of shared quota each queue held lately: who borrowed less of late borrows first. Repeated by beat."""

from datetime import datetime

from django.conf import settings
from django.db import connection

from common import faultpoints
from common.db import sql
from queues.models import RecentUse

_NOTE = sql.load("jobs/sql/note_recent_use.sql")


def note(*, now: datetime) -> None:
    """Write it for all queues that share quota; nothing of it where only what is borrowed now counts."""
    hours = settings.MUSTER_FAIR_SHARE_HALF_LIFE
    with faultpoints.atomic("recent_use.note"):
        if not hours:
            RecentUse.objects.all().delete()
            return
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, {"now": now, "half_life": 3600.0 * hours})
