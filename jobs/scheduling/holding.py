"""How long jobs hold their quota: at most, by their deadlines, and probably, by what they report and by what others took."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Max
from django.utils import timezone

from jobs.analysis.progress import progress
from jobs.core.lifecycle import TERMINAL, Phase, StopReason
from jobs.core.spec import JobSpec
from jobs.models import Attempt, Checkpoint, Job
from queues.admission import Holding, Range
from queues.admission.durations import expected
from queues.models import Queue
from queues.trees import Sharing

SLACK_SECONDS = 60.0  # beyond deadline and grace: until a cluster has removed the pods
RECENT = 1000  # ended jobs of the queue, or of those that share quota with it; with 200 ranges are wider and hold less
FURTHER_AFTER = timedelta(hours=1)  # a job that writes no checkpoints has come further once it ran for so long
# Of a job's own estimate: its steps become slower or quicker, and something follows the last one.
EARLY, LATE = 0.8, 1.3
_NEEDED = (
    "queue_id", "user_id", "slots", "priority", "phase", "phase_since", "attempt", "admitted_at", "running_at", "stop_reason",
    "preempt_requested_at", "spec",
)  # fmt: skip
_NUMBERED = re.compile(r"[-_.]?[0-9]+\Z")


@dataclass(frozen=True)
class Ended:
    """A job that has ended: whose it was, its name without a number at the end, and for how long it held its quota."""

    user: int
    name: str
    seconds: float


class History:
    """For how long jobs that ended held their quota: all of them, by user, and by user and name."""

    def __init__(self, ended: Iterable[Ended]) -> None:
        self.every: list[float] = []
        self.of_user: dict[int, list[float]] = defaultdict(list)
        self.of_name: dict[tuple[int, str], list[float]] = defaultdict(list)
        for one in ended:
            self.every.append(one.seconds)
            self.of_user[one.user].append(one.seconds)
            self.of_name[one.user, one.name].append(one.seconds)


def longest(job: Job) -> float | None:
    """Return for how many seconds a job holds its quota at most, once it is admitted; None without a deadline."""
    deadline = job.spec.get("deadline_seconds")  # as stored: parsing all of it for many jobs would take most of a pass
    if deadline is None:
        return None
    return float(_seconds(job, "start_timeout_seconds") + deadline + _seconds(job, "grace_seconds")) + SLACK_SECONDS


def _seconds(job: Job, name: str) -> int:
    return int(job.spec.get(name, getattr(JobSpec, name)))


def ends_by(job: Job) -> float | None:
    """Return when a job that holds quota gives it back at the latest, in seconds since the epoch."""
    limit = longest(job)
    if limit is None:
        return None
    if job.phase == Phase.RUNNING and job.running_at is not None:
        return job.running_at.timestamp() + limit - float(_seconds(job, "start_timeout_seconds"))
    return (job.admitted_at or job.phase_since).timestamp() + limit


def by_queue(shared: Sharing) -> dict[int, tuple[Holding, ...]]:
    """Return the jobs that hold quota of these queues, by their deadlines alone and by the ids of the queues."""
    jobs = (
        Job.objects.holding_quota()
        .filter(queue__in=[queue.pk for queue in shared.queues])
        .order_by("pk")
        .only(*_NEEDED)
    )
    return grouped(holding(list(jobs), shared))


def grouped(held: Iterable[tuple[int, Holding]]) -> dict[int, tuple[Holding, ...]]:
    found: dict[int, list[Holding]] = {}
    for queue, one in held:
        found.setdefault(queue, []).append(one)
    return {queue: tuple(ones) for queue, ones in found.items()}


def holding(jobs: Sequence[Job], shared: Sharing) -> list[tuple[int, Holding]]:
    """Return jobs that hold quota, each with the id of its queue. What preemption would cost is read where there may be any."""
    queues, now = {queue.pk: queue for queue in shared.queues}, timezone.now()
    held: dict[int, int] = {}
    for job in jobs:
        held[job.queue_id] = held.get(job.queue_id, 0) + job.slots
    borrows = bool(shared.nodes) and any(held.get(queue.pk, 0) > queue.nominal for queue in shared.queues)
    may_preempt = borrows or any(queue.preempts for queue in shared.queues)
    saved = _saved(jobs) if may_preempt else {}
    spared = _spared(jobs, saved, now) if may_preempt else frozenset()
    return [
        (
            job.queue_id,
            Holding(
                job.pk, {queues[job.queue_id].resource: job.slots}, ends_by(job), queue=queues[job.queue_id].name, priority=job.priority,
                lost=job.slots * _unsaved_seconds(job, saved.get(job.pk), now),
                is_leaving=_is_stopping(job) or job.preempt_requested_at is not None,
                is_preempted=job.preempt_requested_at is not None or (_is_stopping(job) and job.stop_reason == StopReason.PREEMPTED),
                is_spared=job.pk in spared, user=job.user_id,
            ),
        )
        for job in jobs
    ]  # fmt: skip


def _is_stopping(job: Job) -> bool:
    """Whether a job gives its quota back; one that is tried again keeps it."""
    return job.phase == Phase.STOPPING and job.stop_reason != StopReason.RETRY


def _unsaved_seconds(job: Job, saved: datetime | None, now: datetime) -> float:
    """Return since when a running job has worked for nothing if it were ended now."""
    began = job.running_at
    if began is None:
        return 0.0
    return max(0.0, (now - max(began, saved or began)).total_seconds())


def _saved(jobs: Sequence[Job]) -> dict[int, datetime]:
    """Return when each job last wrote a checkpoint."""
    running = [job.pk for job in jobs if job.running_at is not None]
    rows = Checkpoint.objects.filter(job__in=running).order_by().values_list("job")
    return dict(rows.annotate(newest=Max("written_at")))


def _spared(jobs: Sequence[Job], saved: Mapping[int, datetime], now: datetime) -> frozenset[int]:
    """Return the jobs that were preempted in the attempt before this one and have come no further since."""
    begun = {job.pk: job for job in jobs if job.attempt and not _came_further(job, saved.get(job.pk), now)}
    # In ADMITTED the newest attempt is the one that has ended.
    last = {pk: job.attempt - (job.phase != Phase.ADMITTED) for pk, job in begun.items()}
    rows = Attempt.objects.filter(job__in=begun, reason=StopReason.PREEMPTED).values_list("job", "number")
    return frozenset(pk for pk, number in rows if last[pk] == number)


def _came_further(job: Job, saved: datetime | None, now: datetime) -> bool:
    began = job.running_at
    if began is None:
        return False
    return (saved is not None and saved > began) or now - began > FURTHER_AFTER


def foreseen(jobs: Sequence[Job], shared: Sharing, ended: History, *, now: datetime) -> list[tuple[int, Holding]]:
    """Return the same with when each probably gives it back."""
    known = progress([job for job in jobs if job.phase == Phase.RUNNING])
    found = []
    for job, (queue, one) in zip(jobs, holding(jobs, shared), strict=True):
        step = known.get(job.pk)
        steps_left = None if step is None else step.seconds_left
        found.append((queue, replace(one, remaining=remaining(job, one, steps_left, ended, now=now))))
    return found


def remaining(job: Job, held: Holding, steps_left: float | None, ended: History, *, now: datetime) -> Range | None:
    """Return for how long a job probably goes on to hold its quota: by its own steps, by others of its kind, or its deadline.

    `steps_left`: the seconds that the steps it has left take at its pace, where it reports them.
    """
    grace = float(_seconds(job, "grace_seconds"))
    if held.is_leaving:
        return Range(0.0, grace + SLACK_SECONDS)
    if steps_left is not None:
        return Range(EARLY * steps_left, LATE * steps_left + grace)
    elapsed = (now - (job.admitted_at or job.phase_since)).total_seconds()
    return like(job, ended, elapsed=elapsed) or _until(held.ends_by, now)


def like(job: Job, ended: History, *, elapsed: float = 0.0) -> Range | None:
    """Return how long a job probably takes: as earlier ones of its user and name, of its user, or of its queue."""
    same = ended.of_name.get((job.user_id, stem(job.name)), [])
    for kind in (same, ended.of_user.get(job.user_id, []), ended.every):
        if found := expected(kind, elapsed=elapsed):
            return found
    return None


def within(job: Job, ended: History) -> Range | None:
    """Return how long a waiting job will probably hold its quota; by its deadline where nothing else is known."""
    limit = longest(job)
    found = like(job, ended)
    if found is None:
        return None if limit is None else Range(0.0, limit)
    return found if limit is None else Range(min(found.least, limit), min(found.most, limit))


def ended_jobs(queues: Iterable[Queue]) -> History:
    """Return the jobs of these queues that ended last, and for how long each held its quota."""
    known = list(queues)
    rows = (
        Job.objects.filter(
            team__in={one.team_id for one in known},
            queue__in=known,
            phase__in=sorted(TERMINAL),
            admitted_at__isnull=False,
        )
        .order_by("-id")
        .values_list("user_id", "name", "admitted_at", "finished_at")
    )
    return History(
        Ended(user, stem(name), (finished - admitted).total_seconds())
        for user, name, admitted, finished in rows[:RECENT]
        if admitted is not None and finished is not None and finished > admitted
    )


def stem(name: str) -> str:
    """Return a name without the number at its end: `llama-sft-12` is of the kind `llama-sft`."""
    return _NUMBERED.sub("", name) or name


def _until(ends: float | None, now: datetime) -> Range | None:
    return None if ends is None else Range(0.0, max(0.0, ends - now.timestamp()))
