"""Notes in a job's history about its own reports: said once per attempt, however often the cause comes again."""

from common import doorbell, faultpoints
from jobs.models import Job, JobEvent

MOST_REMEMBERED = 10_000
_said: dict[tuple[int, int, str], str] = {}  # by this process; the rows are asked where it does not remember


def note_once(*, job: int, attempt: int, about: str, message: str) -> None:
    """`about` begins every such message, and is what is said once."""
    if (job, attempt, about) not in _said:
        _write(job, attempt, about, message, is_latest=False)


def note_latest(*, job: int, attempt: int, about: str, message: str) -> None:
    """One note as well, but its words are replaced when more is known."""
    if _said.get((job, attempt, about)) != message:
        _write(job, attempt, about, message, is_latest=True)


def _write(job: int, attempt: int, about: str, message: str, *, is_latest: bool) -> None:
    """The job's lock lets one look and write after the other: several agents may have the same to tell at the same moment."""
    with faultpoints.atomic("ingest.note"):
        row = Job.objects.select_for_update(no_key=True).only("phase", "team_id").get(pk=job)
        earlier = JobEvent.objects.filter(job=job, attempt=attempt, kind="note", message__startswith=about)
        is_new = not earlier.exists()
        if is_new:
            JobEvent.objects.create(job=row, kind="note", phase=row.phase, attempt=attempt, message=f"{about}{message}")
        elif is_latest:
            is_new = bool(earlier.exclude(message=f"{about}{message}").update(message=f"{about}{message}"))
    if len(_said) >= MOST_REMEMBERED:
        _said.clear()
    _said[job, attempt, about] = message  # only now: of a note that could not be written the next batch is to remind
    if is_new:
        doorbell.hint(job=job, team=row.team_id, what="state")
