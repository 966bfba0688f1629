"""The output of ranks as rows: where their lines are stored, and their metrics. Written by ingest and by packing."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q

from accounts.models import Team
from jobs.core.failure_kinds import Certainty, Kind


class LogSegment(models.Model):
    """Where some lines of one rank are stored: a slice of a file.

    A row without a file is a gap, and is shown as one.
    """

    job = models.ForeignKey("jobs.Job", models.CASCADE, related_name="segments")
    attempt = models.PositiveIntegerField()
    replica = models.ForeignKey("jobs.Replica", models.CASCADE, related_name="+")
    rank = models.IntegerField(help_text="-1 for what the launcher printed")
    first_line = models.BigIntegerField()
    lines = models.IntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    raw_bytes = models.IntegerField()
    path = models.CharField(max_length=120, blank=True)
    offset = models.IntegerField(default=0)
    size_bytes = models.IntegerField(default=0)
    is_packed = models.BooleanField(default=False, db_default=False, help_text="lies in a large file with others")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["replica", "rank", "first_line"], name="segment_lines_once"),
        ]
        indexes = [
            models.Index("job", "attempt", "rank", "id", name="segment_by_rank"),
            models.Index("job", "id", name="segment_by_job"),
            models.Index("replica", "id", condition=Q(is_packed=False) & ~Q(path=""), name="segment_to_pack"),
        ]


class MetricChunk(models.Model):
    """Reported values of one series from one batch, as parallel arrays: a row per value would cost more than training.

    `times` in seconds since the epoch; `steps` hold null where the training reported none, `values` where one is not finite.
    """

    job = models.ForeignKey("jobs.Job", models.CASCADE, related_name="chunks")
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    name = models.CharField(max_length=60)
    times = ArrayField(models.FloatField())
    steps = ArrayField(models.BigIntegerField(null=True))
    values = ArrayField(models.FloatField(null=True))

    class Meta:
        indexes = [models.Index("job", "attempt", "name", "rank", "id", name="series_by_attempt")]
        constraints = [
            models.CheckConstraint(
                condition=Q(times__len=F("steps__len"), values__len=F("steps__len")), name="chunk_arrays_are_parallel"
            )
        ]


class Int8Multirange(models.Field):  # type: ignore[type-arg]  # its class takes none when it runs
    """Postgres' int8multirange; read and written by SQL only."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "int8multirange"


class MetricRollup(models.Model):
    """What all ranks reported of one series within one bucket of time. Written by analysis/rollups.py alone.

    A row that is due has been touched by chunks that it does not count yet. Numbers are null where no value is finite.
    """

    job = models.ForeignKey("jobs.Job", models.CASCADE, related_name="rollups")
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=60)
    width = models.PositiveIntegerField(help_text="of the bucket, in seconds")
    begins = models.BigIntegerField(help_text="in seconds since the epoch, a multiple of the width")
    ranks = models.IntegerField(default=0, help_text="that reported a finite value")
    step = models.BigIntegerField(null=True, help_text="the furthest; null where a value came without one")
    low = models.FloatField(null=True, help_text="the lowest of all values")
    p5 = models.FloatField(null=True, help_text="of the ranks' means, as are median and p95")
    median = models.FloatField(null=True)
    p95 = models.FloatField(null=True)
    high = models.FloatField(null=True, help_text="the highest of all values")
    worst = ArrayField(models.IntegerField(), default=list, help_text="ranks, the farthest from the median first")
    chunks = Int8Multirange(default="{}", help_text="ids: all chunks with values in this bucket lie within")
    is_due = models.BooleanField(default=False)
    rolled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["job", "attempt", "name", "width", "begins"], name="rollup_once_per_bucket"
            ),
        ]
        indexes = [models.Index("begins", condition=Q(is_due=True), name="rollup_due")]


class RollupPosition(models.Model):
    """One row: chunks up to the id `read` have marked their buckets."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    read = models.BigIntegerField(default=0)


class AttemptFailure(models.Model):
    """Why one attempt failed, as last judged.

    Written by failure_rows.py alone, so that lists and filters read no log.
    """

    KINDS = [(kind.value, kind.value.replace("_", " ")) for kind in Kind]
    CERTAINTIES = [(one.value, one.value) for one in Certainty]

    job = models.ForeignKey("jobs.Job", models.CASCADE, related_name="attempt_failures")
    attempt = models.PositiveIntegerField()
    launch = models.ForeignKey(
        "jobs.Attempt", models.CASCADE, null=True, related_name="+", db_index=False, help_text="the row of its attempt"
    )
    rank = models.PositiveIntegerField(null=True, help_text="none where a replica failed before it had ranks")
    replica = models.CharField(max_length=40, blank=True)
    exit_code = models.IntegerField(null=True)
    signal = models.IntegerField(null=True)
    at = models.DateTimeField(null=True)
    kind = models.CharField(max_length=20, choices=KINDS)
    certainty = models.CharField(max_length=10, choices=CERTAINTIES)
    headline = models.TextField(help_text="the error itself in one line")
    explanation = models.TextField(help_text="the end in words")
    traceback = models.JSONField(default=list, help_text="lines")
    last_lines = models.JSONField(
        default=list, help_text="the traceback, or without one the last lines that were printed"
    )
    traceback_rank = models.PositiveIntegerField(null=True, help_text="whose traceback it is")
    has_stopped_others = models.BooleanField(default=False, help_text="others were stopped by their launchers for it")
    after_end = models.BooleanField(
        default=False, db_default=False, help_text="it became this one by reports that came after the attempt's end"
    )
    node = models.CharField(
        max_length=253, blank=True, default="", db_default="", help_text="that it blames; empty for most"
    )
    judged_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt"], name="failure_once_per_attempt"),
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in Kind]), name="failure_kind_is_known"),
        ]
        indexes = [
            models.Index("kind", "job", "attempt", name="failure_by_kind"),
            models.Index(fields=["launch"], condition=Q(launch__isnull=False), name="failure_by_launch"),
            models.Index(fields=["judged_at"], condition=~Q(node=""), name="failure_blaming_a_node"),
        ]


class LogBudget(models.Model):
    """A team's own limits for its logs, in bytes as stored (null: the installation's; 0: no limit).

    Written by `manage.py team_logs`.
    """

    team = models.OneToOneField(Team, models.CASCADE, primary_key=True, related_name="log_budget")
    job_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    team_bytes = models.PositiveBigIntegerField(null=True, blank=True)
