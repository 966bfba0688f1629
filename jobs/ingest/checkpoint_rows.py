"""Write what an agent lists of its job's checkpoints. The rows of a job are the newest listing."""

from datetime import UTC, datetime

from common import faultpoints
from jobs.core.checkpoints import Listing
from jobs.models import Checkpoint


def record(*, job: int, attempt: int, listing: Listing) -> bool:
    """Make the job's rows those of this listing. Return whether anything changed but its time.

    Idempotent. One that is older than what the rows show, such as of the attempt before, is ignored.
    """
    at = datetime.fromtimestamp(listing.at, UTC)
    with faultpoints.atomic("ingest.checkpoints"):
        known = {row.name: row for row in Checkpoint.objects.select_for_update().filter(job=job).order_by("id")}
        if any(row.seen_at > at for row in known.values()):
            return False
        listed = [
            Checkpoint(
                job_id=job, name=one.name, step=one.step, size_bytes=one.size, attempt=attempt, seen_at=at,
                written_at=datetime.fromtimestamp(one.written_at, UTC),
            )
            for one in sorted(listing.checkpoints, key=lambda one: (one.written_at, one.step or 0, one.name))
        ]  # fmt: skip
        changed = [row for row in listed if row.name not in known or _differ(row, known[row.name])]
        gone = set(known) - {row.name for row in listed}
        Checkpoint.objects.bulk_create(
            changed,
            update_conflicts=True,
            unique_fields=["job", "name"],
            update_fields=["step", "size_bytes", "written_at", "attempt"],
        )
        Checkpoint.objects.filter(job=job, name__in=gone).delete()
        Checkpoint.objects.filter(job=job).update(seen_at=at)
    return bool(changed or gone)


def _differ(one: Checkpoint, other: Checkpoint) -> bool:
    return (one.step, one.size_bytes, one.written_at) != (other.step, other.size_bytes, other.written_at)
