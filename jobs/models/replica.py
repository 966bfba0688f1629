"""The replicas of a job's attempts, and the ranks in them: written by the reconciler, the watcher and ingest."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q

from jobs.core import silence, verdict

from .job import Job


class Replica(models.Model):
    """One pod or local process of one attempt.

    Written by the reconciler and the watcher; ingest writes `batch_seq`, `unexpected_*` and the other columns about
    batches.
    """

    STATES = [(state.value, state.value) for state in verdict.ReplicaState]

    job = models.ForeignKey(Job, models.CASCADE, related_name="replicas")
    attempt = models.PositiveIntegerField()
    launch = models.ForeignKey(
        "jobs.Attempt", models.CASCADE, null=True, related_name="+", db_index=False, help_text="the row of its attempt"
    )
    role = models.CharField(max_length=20)
    index = models.PositiveIntegerField()
    incarnation = models.PositiveIntegerField(default=0, db_default=0, help_text="how often its place was given anew")
    replaced_at = models.DateTimeField(null=True, help_text="when that was decided")
    applied_at = models.DateTimeField(null=True, help_text="when the cluster had confirmed the newest one's creation")
    lines_before = models.JSONField(default=dict, db_default={}, help_text="rank to lines that its earlier ones sent")
    name = models.CharField(max_length=80)
    node = models.CharField(max_length=253, blank=True)
    topology = models.JSONField(
        null=True,
        help_text="the node's values of the labels that its queue's template names as levels; null: not looked up",
    )
    state = models.CharField(max_length=10, choices=STATES, default=verdict.ReplicaState.PENDING)
    reason = models.TextField(blank=True)
    exit_code = models.IntegerField(null=True)
    signal = models.IntegerField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(
        null=True, help_text="when its attempt ended; from then on its ranks stay as they are"
    )
    seen_version = models.BigIntegerField(
        default=0, db_default=0, help_text="of the cluster's look that is written here"
    )
    seen_at = models.DateTimeField(null=True, help_text="when that was written")
    batch_seq = models.BigIntegerField(default=0, help_text="the last batch of its agent that was applied")
    is_restored = models.BooleanField(
        default=False,
        db_default=False,
        help_text="from a backup: its agent may have sent batches since, which are lost",
    )
    log_bytes = models.BigIntegerField(default=0, db_default=0, help_text="of its lines' text, as ingest stored it")
    last_batch_at = models.DateTimeField(null=True)
    mirrored_at = models.DateTimeField(null=True, help_text="when lines were last read from its container's own log")
    unjudged_at = models.DateTimeField(
        null=True, help_text="when its agent last reported what may change its attempt's verdict; null: judged since"
    )
    unexpected_ranks = models.JSONField(
        default=dict,
        db_default={},
        help_text="rank to what its agent reported of it, though it is none of this replica",
    )
    nodes = models.JSONField(
        null=True,
        help_text="the nodes of its framework's own cluster as its agent last reported them (jobs/core/nodes.py)",
    )
    unexpected_lines = models.BigIntegerField(
        default=0, db_default=0, help_text="lines of unexpected ranks that were added to the launcher's log"
    )

    class Meta:
        ordering = ["attempt", "role", "index"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "role", "index"], name="replica_once_per_attempt")
        ]
        indexes = [
            models.Index("job", condition=Q(unjudged_at__isnull=False), name="replica_unjudged"),
            models.Index(fields=["launch"], condition=Q(launch__isnull=False), name="replica_by_launch"),
            models.Index(fields=["node", "-id"], condition=~Q(node=""), name="replica_by_node"),
            models.Index(
                fields=["node"],
                condition=~Q(node="") & Q(ended_at__isnull=True) & Q(closed_at__isnull=True),
                name="replica_live_by_node",
            ),
        ]

    def silent_for(self, now: datetime) -> timedelta | None:
        """Return how long its agent has been silent, None while that is no cause for concern."""
        return silence.silent_for(self.state, started_at=self.started_at, last_batch_at=self.last_batch_at, now=now)

    @staticmethod
    def is_silent(now: datetime) -> Q:
        """Return the condition of `silent_for` for rows."""
        since = now - silence.SILENT
        heard_before = Q(last_batch_at__lte=since) | Q(last_batch_at=None, started_at__lte=since)
        return Q(state=verdict.ReplicaState.RUNNING) & heard_before


class RankState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"


class Rank(models.Model):
    """One training process. Rows are created at launch, ingest fills them; cpu in cores, gpu in 0..1."""

    replica = models.ForeignKey(Replica, models.CASCADE, related_name="ranks")
    job = models.ForeignKey(Job, models.CASCADE, related_name="ranks")
    attempt = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    local_rank = models.PositiveIntegerField()
    # In an elastic job: torchrun's current rank, which changes with each rendezvous; `rank` is its place and stays.
    world_rank = models.PositiveIntegerField(null=True)
    world_size = models.PositiveIntegerField(null=True)
    state = models.CharField(max_length=10, choices=RankState, default=RankState.WAITING)
    restarts = models.PositiveIntegerField(
        default=0, db_default=0, help_text="how often it was started again in this replica; only that changes an end"
    )
    pid = models.PositiveIntegerField(null=True)
    exit_code = models.IntegerField(null=True)
    signal = models.IntegerField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    error_at = models.DateTimeField(null=True, help_text="when its last traceback began")
    is_connection_error = models.BooleanField(default=False)
    is_stopped = models.BooleanField(default=False, help_text="its launcher ended it; it is not the cause")
    error = models.JSONField(null=True, help_text="the end of what it printed, as its agent sent it with a failure")
    step = models.BigIntegerField(null=True)
    last_line_at = models.DateTimeField(null=True)
    lines = models.BigIntegerField(default=0)
    cpu = models.FloatField(null=True)
    rss_bytes = models.BigIntegerField(null=True)
    gpu = models.FloatField(null=True)
    gpu_idle_since = models.DateTimeField(null=True, help_text="since when every report had its GPU idle; null: in use")
    gpu_mem_bytes = models.BigIntegerField(null=True)
    gpu_mem_total_bytes = models.BigIntegerField(null=True)
    gpu_watts = models.FloatField(null=True)
    gpu_celsius = models.FloatField(null=True)
    gpu_ecc_errors = models.BigIntegerField(null=True, help_text="uncorrected, since the driver was loaded")
    gpu_xid = models.IntegerField(null=True, help_text="the last critical error that the driver reported")
    nan_series = models.CharField(
        max_length=60,
        default="",
        db_default="",
        help_text="whose newest value is not finite, such as loss; empty: none",
    )
    nan_step = models.BigIntegerField(null=True, help_text="since which step; null where it was reported without one")

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "rank"], name="rank_once_per_attempt"),
            models.CheckConstraint(condition=Q(exit_code=None) | Q(signal=None), name="rank_ended_one_way"),
        ]
        indexes = [
            models.Index(
                fields=["replica"],
                condition=Q(state="running")
                & (Q(gpu_idle_since__isnull=False) | Q(gpu_xid__isnull=False) | Q(gpu_ecc_errors__gt=0)),
                name="rank_to_look_at",
            ),
        ]
