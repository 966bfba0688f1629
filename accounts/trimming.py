"""Delete what is kept about people once its time is over.

That is ended sessions, failed sign-ins, and old audit entries where the installation configures it. docs/security.md
has the table.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from axes.models import AccessAttempt
from django.conf import settings
from django.db import connection

from . import audit
from .audit import AuditAction
from .models import AuditEntry, SignIn

FAILURES_KEPT = timedelta(days=30)
AT_ONCE = 5000  # entries in one transaction
MOST_TURNS = 200  # the rest goes with the next day's run


@dataclass(frozen=True)
class Trimmed:
    sessions: int = 0
    failures: int = 0
    entries: int = 0


def trim(*, now: datetime) -> Trimmed:
    """Delete what is over.

    May run twice, and be killed anywhere: each part is one transaction, and the next run does the rest.
    """
    with audit.change():
        sessions, _ = SignIn.objects.filter(expire_date__lt=now).delete()
        failures, _ = AccessAttempt.objects.filter(attempt_time__lt=now - FAILURES_KEPT).delete()
    return Trimmed(sessions, failures, _trim_audit(now))


def _trim_audit(now: datetime) -> int:
    if not settings.MUSTER_AUDIT_DAYS:
        return 0
    over, count = now - timedelta(days=settings.MUSTER_AUDIT_DAYS), 0
    for _ in range(MOST_TURNS):
        gone = _trim_some(over)
        count += gone
        if gone < AT_ONCE:
            break
    return count


def _trim_some(over: datetime) -> int:
    """Delete the oldest entries of one batch; return how many.

    The database allows that only in a transaction that declares it, and only for entries of at least 90 days.
    """
    with audit.change():
        oldest = list(AuditEntry.objects.filter(at__lt=over).order_by("pk").values_list("pk", flat=True)[:AT_ONCE])
        if not oldest:
            return 0
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL muster.trims_audit = 'yes'")
            AuditEntry.objects.filter(pk__in=oldest).delete()
            cursor.execute("SET LOCAL muster.trims_audit = 'no'")
        audit.record(AuditAction.AUDIT_TRIMMED, by=None, after={"entries": len(oldest), "before": over})
    return len(oldest)
