"""The checkpoints of a job: which there are, and how much work would be lost if it ended now."""

from datetime import datetime

from django.db.models import F, Max, Q, QuerySet

from jobs.models import Checkpoint, Job


def newest_first(job: Job) -> QuerySet[Checkpoint]:
    """Return them by their steps; those without one follow, by time."""
    return job.checkpoints.order_by(F("step").desc(nulls_last=True), "-written_at", "-id")


def seen_at(job: Job) -> datetime | None:
    """Return the time of the listing that its rows show; None without any."""
    newest: datetime | None = job.checkpoints.aggregate(at=Max("seen_at"))["at"]
    return newest


def latest_at(job: Job) -> datetime | None:
    """Return when its latest checkpoint was written; None where none is known.

    Those with a step count; where no name says one, all do. What a job writes elsewhere is not known, such as to a
    volume, nor whether one is complete.
    """
    found = job.checkpoints.aggregate(stepped=Max("written_at", filter=Q(step__isnull=False)), any=Max("written_at"))
    latest: datetime | None = found["stepped"] or found["any"]
    return latest
