"""What remains of a job that its `ttl_seconds` removed: who used how much, its idempotency key, and which files are left."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User
from queues.models import Queue

from .job import PHASES


class RemovedJob(models.Model):
    """One row for each removed job, written in the transaction that deletes it (logs/removal.py).

    `slots` times `held_seconds` is what it used. The key still belongs to it, so that a request that is repeated late
    does not run the job a second time.
    """

    id = models.BigIntegerField(primary_key=True, help_text="of the job")
    uid = models.CharField(max_length=8)
    team = models.ForeignKey(Team, models.PROTECT, related_name="removed_jobs")
    queue = models.ForeignKey(Queue, models.PROTECT, related_name="removed_jobs")
    user = models.ForeignKey(User, models.PROTECT, related_name="removed_jobs")
    name = models.CharField(max_length=48)
    framework = models.CharField(max_length=40)
    phase = models.CharField(max_length=10, choices=PHASES, help_text="its last")
    slots = models.PositiveIntegerField(help_text="quota that it took")
    attempt = models.PositiveIntegerField(help_text="the number of its last attempt; 0: it never started")
    held_seconds = models.BigIntegerField(help_text="how long its attempts lasted together")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, help_text="when it was first running")
    finished_at = models.DateTimeField()
    removed_at = models.DateTimeField(default=timezone.now)
    files_deleted_at = models.DateTimeField(null=True, help_text="when its files were; null: they are still to be")
    idempotency_key = models.CharField(max_length=80, null=True)

    class Meta:
        indexes = [
            models.Index(fields=["id"], condition=Q(files_deleted_at=None), name="removed_with_files"),
            # Not unique: a process of the release before looks among jobs only, and may use a key again.
            models.Index(
                fields=["team", "user", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="removed_by_key",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def told(self) -> str:
        """What became of it, for a request that is repeated."""
        return (
            f"job {self.name} (id {self.pk}) of team {self.team.name}, which was {self.phase} and has been removed on "
            f"{self.removed_at:%Y-%m-%d} (ttl_seconds); use a new key to run it again"
        )

    @property
    def run(self) -> str:
        """As `Job.run`."""
        return f"{self.pk}-{self.uid}"
