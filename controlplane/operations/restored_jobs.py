"""What the processes and agents of an installation must know of restored jobs before they may go on with them.

Processes and agents may be running while an archive is restored, so it is committed together with the rows. Columns that
it needs may be missing in tables of a release before: then jobs rest until these are up to date, and a comment on the table
of migrations says so, so that `muster-server migrate` ends what a restoration that died has begun.
"""

import json
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import F, QuerySet
from django.utils import timezone
from psycopg import sql

from accounts import audit
from jobs.models import Job, Replica

# Numbers of attempts that were started after the backup are not given again: one may still run, and has closed its number
# when it ends.
ATTEMPTS_GO_ON = 10
OWNER = "muster-server restore"
FOR_GOOD = timedelta(days=10_000)  # until `release`: a lease that ran out would let processes visit jobs too early
_TABLE = MigrationRecorder.Migration._meta.db_table


def expect(about: dict[str, Any]) -> int:
    """Let agents of replicas that run go on with whatever number they have come to since the backup; returns how many.

    The next attempt of each job gets a number that none has had. `about`: of the archive.
    """
    Job.objects.active().update(attempt_floor=F("attempt") + ATTEMPTS_GO_ON)
    after = {"backup": about["at"], "release": about["release"]}
    audit.record(audit.AuditAction.RESTORED, by=None, after=after)
    return _may_still_run().update(is_restored=True)


def hold(about: dict[str, Any]) -> int:
    """Keep the processes from visiting unfinished jobs until `release`; returns how many replicas may still run."""
    until = timezone.now() + FOR_GOOD
    Job.objects.active().update(lease_owner=OWNER, lease_token=F("lease_token") + 1, lease_expires_at=until)
    _note(json.dumps({"restored": {"at": about["at"], "release": about["release"]}}))
    return _may_still_run().count()


def release() -> bool:
    """Let processes and agents go on with jobs that were held. Return False, and change nothing, if none are."""
    with transaction.atomic():
        about = held()
        if about is None:
            return False
        expect(about)
        Job.objects.active().filter(lease_owner=OWNER).update(lease_owner="", lease_expires_at=None)
        _note(None)
    return True


def held() -> dict[str, Any] | None:
    """Return of which backup ("at", "release") there are jobs that rest; raises DatabaseError."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [_TABLE])
        (note,) = cursor.fetchone()
    found: dict[str, Any] | None = json.loads(note).get("restored") if note and note.startswith("{") else None
    return found


def _note(text: str | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(_TABLE), sql.Literal(text)))


def _may_still_run() -> QuerySet[Replica]:
    return Replica.objects.filter(closed_at=None)
