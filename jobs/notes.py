"""Notes in a job's history about its own reports: said once per attempt, however often the cause comes again."""

from controlplane import crash, doorbell

from .models import Job, JobEvent

MOST_REMEMBERED = 10_000
_said: set[tuple[int, int, str]] = set()  # by this process; the rows are asked where it does not remember


def note_once(*, job: int, attempt: int, about: str, message: str) -> None:
    """`about` begins every such message, and is what is said once."""
    key = (job, attempt, about)
    if key in _said:
        return
    _write(job, attempt, about, message)
    if len(_said) >= MOST_REMEMBERED:
        _said.clear()
    _said.add(key)  # only now: of a note that could not be written the next batch is to remind


def _write(job: int, attempt: int, about: str, message: str) -> None:
    """The job's lock lets one look and write after the other: several agents may have the same to tell at the same moment."""
    with crash.atomic("ingest.note"):
        row = Job.objects.select_for_update(no_key=True).only("phase", "team_id").get(pk=job)
        if JobEvent.objects.filter(job=job, attempt=attempt, kind="note", message__startswith=about).exists():
            return
        JobEvent.objects.create(job=row, kind="note", phase=row.phase, attempt=attempt, message=f"{about}{message}")
    doorbell.hint(job=job, team=row.team_id, what="state")
