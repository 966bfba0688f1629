"""The checkpoints of a job, as the agent of its first replica last listed them. Written by ingest alone."""

from django.db import models


class Checkpoint(models.Model):
    """A file or folder in the job's folder for checkpoints. One that is no longer there has no row."""

    job = models.ForeignKey("jobs.Job", models.CASCADE, related_name="checkpoints", db_index=False)
    name = models.CharField(max_length=255)
    step = models.BigIntegerField(null=True, help_text="as its name says; null: it says none")
    size_bytes = models.BigIntegerField(null=True, help_text="null: not known")
    written_at = models.DateTimeField(help_text="when something in it was last written")
    attempt = models.PositiveIntegerField(help_text="the attempt in which it was last seen to change")
    seen_at = models.DateTimeField(help_text="when it was last listed")

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="checkpoint_once_per_job")]

    def __str__(self) -> str:
        return self.name
