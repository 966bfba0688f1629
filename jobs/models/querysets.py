"""Named queries on jobs."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models

from accounts.models import User
from accounts.permissions import readable_teams
from jobs.core import lifecycle

if TYPE_CHECKING:
    from .job import Job


def failed_with(kinds: Iterable[str]) -> models.Q:
    """Match jobs whose newest attempt failed in one of these ways."""
    return models.Q(
        attempt_failures__kind__in=list(kinds), attempt_failures__attempt=models.F("attempt")
    )  # unique by attempt: no job appears twice


def in_order(waiting: "JobQuerySet") -> "JobQuerySet":
    """Return waiting jobs of one queue in the order in which they are admitted (queues/admission, `Pending.order`)."""
    return waiting.order_by("-priority", "created_at", "id")


def turn(job: "Job") -> tuple[int, datetime, int]:
    """Return what `in_order` sorts a job by."""
    return -job.priority, job.created_at, job.pk


def ahead_of(job: "Job") -> models.Q:
    """Match what `in_order` sorts before a job."""
    older = models.Q(created_at__lt=job.created_at) | models.Q(created_at=job.created_at, pk__lt=job.pk)
    return models.Q(priority__gt=job.priority) | (models.Q(priority=job.priority) & older)


class JobQuerySet(models.QuerySet["Job"]):
    def readable_by(self, user: User) -> "JobQuerySet":
        teams = readable_teams(user)
        return self if teams is None else self.filter(team_id__in=teams)

    def active(self) -> "JobQuerySet":
        return self.exclude(phase__in=sorted(lifecycle.TERMINAL))

    def holding_quota(self) -> "JobQuerySet":
        return self.filter(phase__in=sorted(lifecycle.HOLDS_QUOTA))

    def due(self, now: datetime) -> "JobQuerySet":
        return self.active().filter(next_reconcile_at__lte=now)

    def waiting(self) -> "JobQuerySet":
        """Return queued jobs that the scheduler may admit."""
        return self.filter(phase=lifecycle.Phase.QUEUED, cancel_requested_at=None, suspended=False)
