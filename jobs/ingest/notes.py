"""Notes in a job's history about its reports: written once per attempt, however often the cause recurs."""

from common import faultpoints
from common.signals import doorbell
from jobs.models import Job, JobEvent

MOST_REMEMBERED = 10_000
_written: dict[tuple[int, int, str], str] = {}  # cache of this process; otherwise the rows are queried


def note_once(*, job: int, attempt: int, about: str, message: str) -> None:
    """Write a note unless one that begins with `about` exists for this attempt."""
    if (job, attempt, about) not in _written:
        _write(job, attempt, about, message=message, is_latest=False)


def note_latest(*, job: int, attempt: int, about: str, message: str) -> None:
    """Write a note once, and replace its message when it changes."""
    if _written.get((job, attempt, about)) != message:
        _write(job, attempt, about, message=message, is_latest=True)


def _write(job: int, attempt: int, about: str, *, message: str, is_latest: bool) -> None:
    """Write under the job's lock, because several agents may report the same at the same moment."""
    with faultpoints.atomic("ingest.note"):
        row = Job.objects.select_for_update(no_key=True).only("phase", "team_id").get(pk=job)
        earlier = JobEvent.objects.filter(job=job, attempt=attempt, kind="note", message__startswith=about)
        is_new = not earlier.exists()
        if is_new:
            JobEvent.objects.create(job=row, kind="note", phase=row.phase, attempt=attempt, message=f"{about}{message}")
        elif is_latest:
            is_new = bool(earlier.exclude(message=f"{about}{message}").update(message=f"{about}{message}"))
    if len(_written) >= MOST_REMEMBERED:
        _written.clear()
    _written[job, attempt, about] = message  # only now: if the note could not be written, the next batch must try again
    if is_new:
        doorbell.hint(job=job, team=row.team_id, what="state")
