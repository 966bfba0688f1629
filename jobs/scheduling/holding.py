"""How long jobs hold their quota: at most, by their deadlines, and probably, by what they report and by what others took."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.analysis.progress import progress
from jobs.core.lifecycle import TERMINAL, Phase
from jobs.models import Job
from queues.admission import Holding, Range
from queues.admission.durations import expected
from queues.models import Queue

SLACK_SECONDS = 60.0  # beyond deadline and grace: until a cluster has removed the pods
RECENT = 200  # ended jobs of the queue
# Of a job's own estimate: its steps become slower or quicker, and something follows the last one.
EARLY, LATE = 0.8, 1.3
_NUMBERED = re.compile(r"[-_.]?[0-9]+\Z")


@dataclass(frozen=True)
class Ended:
    """A job that has ended: whose it was, its name without a number at the end, and for how long it held its quota."""

    user: int
    name: str
    seconds: float


def longest(job: Job) -> float | None:
    """Return for how many seconds a job holds its quota at most, once it is admitted; None without a deadline."""
    spec = job.job_spec
    if spec.deadline_seconds is None:
        return None
    return float(spec.start_timeout_seconds + spec.deadline_seconds + spec.grace_seconds) + SLACK_SECONDS


def ends_by(job: Job) -> float | None:
    """Return when a job that holds quota gives it back at the latest, in seconds since the epoch."""
    spec, limit = job.job_spec, longest(job)
    if limit is None:
        return None
    if job.phase == Phase.RUNNING and job.running_at is not None:
        return job.running_at.timestamp() + limit - spec.start_timeout_seconds
    return (job.admitted_at or job.phase_since).timestamp() + limit


def holding(jobs: Iterable[Job], queue: Queue) -> tuple[Holding, ...]:
    """Return jobs that hold quota of a queue, by their deadlines alone."""
    return tuple(Holding(job.pk, {queue.resource: job.slots}, ends_by(job)) for job in jobs)


def foreseen(jobs: Sequence[Job], queue: Queue, ended: Sequence[Ended], *, now: datetime) -> tuple[Holding, ...]:
    """Return the same with when each probably gives it back: by its own steps, by others of its kind, or its deadline."""
    known = progress([job for job in jobs if job.phase == Phase.RUNNING])
    found = []
    for job, one in zip(jobs, holding(jobs, queue), strict=True):
        step = known.get(job.pk)
        grace = float(job.job_spec.grace_seconds)
        if step is not None and step.seconds_left is not None:
            remaining: Range | None = Range(EARLY * step.seconds_left, LATE * step.seconds_left + grace)
        elif job.phase == Phase.STOPPING:
            remaining = Range(0.0, grace + SLACK_SECONDS)
        else:
            elapsed = (now - (job.admitted_at or job.phase_since)).total_seconds()
            remaining = like(job, ended, elapsed=elapsed) or _until(one.ends_by, now)
        found.append(Holding(one.job, one.takes, one.ends_by, remaining))
    return tuple(found)


def like(job: Job, ended: Sequence[Ended], *, elapsed: float = 0.0) -> Range | None:
    """Return how long a job probably takes: as earlier ones of its user and name, of its user, or of its queue."""
    name = stem(job.name)
    theirs = [one for one in ended if one.user == job.user_id]
    for kind in ([one for one in theirs if one.name == name], theirs, ended):
        if found := expected([one.seconds for one in kind], elapsed=elapsed):
            return found
    return None


def within(job: Job, ended: Sequence[Ended]) -> Range | None:
    """Return how long a waiting job will probably hold its quota; by its deadline where nothing else is known."""
    limit = longest(job)
    found = like(job, ended)
    if found is None:
        return None if limit is None else Range(0.0, limit)
    return found if limit is None else Range(min(found.least, limit), min(found.most, limit))


def ended_jobs(queue: Queue) -> list[Ended]:
    """Return the queue's jobs that ended last, and for how long each held its quota."""
    rows = (
        Job.objects.filter(team=queue.team_id, queue=queue, phase__in=sorted(TERMINAL), admitted_at__isnull=False)
        .order_by("-id")
        .values_list("user_id", "name", "admitted_at", "finished_at")
    )
    return [
        Ended(user, stem(name), (finished - admitted).total_seconds())
        for user, name, admitted, finished in rows[:RECENT]
        if admitted is not None and finished is not None and finished > admitted
    ]


def stem(name: str) -> str:
    """Return a name without the number at its end: `llama-sft-12` is of the kind `llama-sft`."""
    return _NUMBERED.sub("", name) or name


def _until(ends: float | None, now: datetime) -> Range | None:
    return None if ends is None else Range(0.0, max(0.0, ends - now.timestamp()))
