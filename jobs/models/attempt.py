"""The launches of a job. Written by the store with each step; `analysis/attempts.py` completes what an older process left out."""

from django.db import models
from django.db.models import Q

from workspaces.models import Workspace

from .job import PHASES, REASONS, Job


class Attempt(models.Model):
    """One launch of a job: where, with which code, and when it was decided, confirmed, running and over.

    For one release `Job` keeps the same times of its newest attempt, which win where the two differ: processes of the
    release before write those alone.
    """

    job = models.ForeignKey(Job, models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField(help_text="counted from 1; a restored job skips some")
    cluster = models.CharField(max_length=40, help_text="its name in CLUSTERS")
    namespace = models.CharField(max_length=63, blank=True, help_text="of its objects; empty where there are none")
    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True, related_name="+", help_text="its code")
    secrets = models.JSONField(null=True, help_text="versions of the team's secrets that it began with, by name")
    launched_at = models.DateTimeField(help_text="when it was decided")
    applied_at = models.DateTimeField(null=True, help_text="when the cluster had confirmed its creation")
    running_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(
        max_length=10, choices=PHASES, blank=True, help_text="the phase after it; empty: it lasts"
    )
    reason = models.CharField(max_length=16, choices=REASONS, blank=True, help_text="why it was stopped")
    message = models.TextField(blank=True, help_text="of its last step")
    idle_seconds = models.FloatField(
        default=0.0, db_default=0.0, help_text="of all its GPUs together, for as long as they were idle at least"
    )
    idle_noted_at = models.DateTimeField(null=True, help_text="until when idle GPUs were added to that")

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempt_once_per_job"),
            models.CheckConstraint(
                condition=Q(ended_at=None, outcome="") | (Q(ended_at__isnull=False) & ~Q(outcome="")),
                name="attempt_ends_with_an_outcome",
            ),
            models.CheckConstraint(condition=Q(number__gt=0), name="attempt_is_counted_from_one"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job_id}"


def newest_namespace() -> models.Subquery:
    """Return the namespace of a job's newest attempt, for a query of jobs; None where an older process wrote no row."""
    newest = Attempt.objects.filter(job=models.OuterRef("pk"), number=models.OuterRef("attempt"))
    return models.Subquery(newest.values("namespace")[:1])
