"""Jobs and the history of each. Postgres guards the invariants declared here.

Writers, by column: services write intent (`cancel_requested_at`, `cancel_now_at`, `suspended`), the scheduler QUEUED to
ADMITTED and `wait_reason`, the reconciler every other phase, the reconciler and the watcher replica states
(replica_status.py), ingest what agents report about ranks, logs and metrics, retention `log_bytes` and
`logs_collected_at` of finished jobs. Removal (logs/removal.py) deletes finished jobs.
"""

import secrets
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.functional import cached_property

from accounts.models import Team, User
from jobs.core import lifecycle, removal, restarts
from jobs.core.spec import JobSpec
from jobs.core.verdict import RoleView
from queues.models import Queue, QueueVersion
from queues.resources import Resources
from workspaces.models import Workspace

from .querysets import JobQuerySet

PHASES = [(phase.value, phase.value.capitalize()) for phase in lifecycle.Phase]
REASONS = [(reason.value, reason.value.replace("_", " ")) for reason in lifecycle.StopReason]
_TERMINAL = sorted(lifecycle.TERMINAL)


def new_uid() -> str:
    return secrets.token_hex(3)


class Job(models.Model):
    # the request
    team = models.ForeignKey(Team, models.PROTECT, related_name="jobs")
    queue = models.ForeignKey(Queue, models.PROTECT, related_name="jobs")
    user = models.ForeignKey(User, models.PROTECT, related_name="jobs")
    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True, related_name="jobs")
    template = models.ForeignKey(
        QueueVersion, models.PROTECT, null=True, related_name="+", db_index=False,
        help_text="what its queue said of pods when it was submitted; null: before queues had versions",
    )  # fmt: skip
    name = models.CharField(max_length=48)
    # Behind the id in every path and object name: ids are reused after a database is recreated, while a folder may
    # remain.
    uid = models.CharField(max_length=8, default=new_uid, editable=False)
    spec = models.JSONField(help_text="the resolved description, frozen at submission")
    roles = models.JSONField(
        null=True,
        help_text="its roles as RoleView, frozen at submission; null where a release before roles submitted it",
    )
    sealed_secrets = models.TextField(
        blank=True, default="", help_text="values of spec.secrets, encrypted (job_secrets.py)"
    )
    priority = models.SmallIntegerField(default=0)
    slots = models.PositiveIntegerField(help_text="quota it takes, over all roles")
    idempotency_key = models.CharField(max_length=80, null=True)
    request_digest = models.CharField(
        max_length=64, null=True, help_text="sha256 of the request that brought the key; null for keys from before"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ttl_seconds = models.PositiveIntegerField(
        null=True, help_text="from its end to its removal (logs/removal.py); null: it stays"
    )
    # what users and the scheduler request
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_now_at = models.DateTimeField(null=True, help_text="when somebody asked to end it without its grace")
    preempt_requested_at = models.DateTimeField(null=True)
    suspended = models.BooleanField(default=False)
    # the current state
    phase = models.CharField(max_length=10, choices=PHASES, default=lifecycle.Phase.QUEUED)
    phase_since = models.DateTimeField(default=timezone.now)
    stop_reason = models.CharField(max_length=16, choices=REASONS, blank=True)
    message = models.TextField(blank=True, help_text="the last step in words")
    wait_code = models.CharField(
        max_length=20, blank=True, default="", db_default="", help_text="of the reason (queues/admission/reasons.py)"
    )
    wait_reason = models.TextField(blank=True, help_text="why it is not admitted yet")
    attempt = models.PositiveIntegerField(default=0)
    attempt_floor = models.PositiveIntegerField(
        null=True, help_text="restored from a backup: its next attempt has at least this number"
    )
    failures = models.PositiveIntegerField(default=0)
    free_starts = models.PositiveIntegerField(default=0)
    admitted_at = models.DateTimeField(null=True)
    launched_at = models.DateTimeField(null=True, help_text="when this attempt was decided")
    applied_at = models.DateTimeField(null=True, help_text="when the cluster had confirmed its creation")
    running_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    logs_collected_at = models.DateTimeField(null=True, help_text="when its log was deleted")
    log_bytes = models.BigIntegerField(
        null=True, help_text="what its log takes; settled after its end, null before (replicas have the parts)"
    )
    # the visit
    lease_token = models.BigIntegerField(default=0)
    lease_owner = models.CharField(max_length=80, blank=True)
    lease_expires_at = models.DateTimeField(null=True)
    next_reconcile_at = models.DateTimeField(null=True, default=timezone.now)

    objects = JobQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            # A name is free again when its job has finished.
            models.UniqueConstraint(
                fields=["team", "name"], condition=~Q(phase__in=_TERMINAL), name="job_open_name_once_per_team"
            ),
            models.UniqueConstraint(fields=["user", "team", "idempotency_key"], name="job_once_per_team_and_key"),
            models.CheckConstraint(
                condition=Q(phase__in=[p.value for p in lifecycle.Phase]), name="job_phase_is_known"
            ),
            models.CheckConstraint(
                condition=Q(phase__in=_TERMINAL, finished_at__isnull=False)
                | (~Q(phase__in=_TERMINAL) & Q(finished_at=None)),
                name="job_finished_at_only_when_finished",
            ),
            models.CheckConstraint(
                condition=~Q(phase=lifecycle.Phase.STOPPING) | ~Q(stop_reason=""), name="job_stopping_has_a_reason"
            ),
            models.CheckConstraint(
                condition=~Q(phase__in=sorted(lifecycle.ON_CLUSTER))
                | Q(attempt__gt=0, launched_at__isnull=False)
                | Q(phase=lifecycle.Phase.STOPPING),
                name="job_on_cluster_has_an_attempt",
            ),
            models.CheckConstraint(condition=Q(slots__gt=0), name="job_takes_slots"),
        ]
        indexes = [
            models.Index("next_reconcile_at", condition=~Q(phase__in=_TERMINAL), name="job_due"),
            models.Index("queue", "phase", condition=~Q(phase__in=_TERMINAL), name="job_open_by_queue"),
            models.Index(
                fields=["queue", "-priority", "created_at", "id"],
                condition=Q(phase=lifecycle.Phase.QUEUED.value),
                name="job_waiting_in_order",
            ),
            models.Index(
                fields=["queue", "slots", "id"],
                condition=Q(phase=lifecycle.Phase.QUEUED.value),
                name="job_waiting_by_slots",
            ),
            models.Index(
                fields=["queue"],
                condition=Q(("phase", lifecycle.Phase.QUEUED.value), ~Q(wait_code="behind")),
                name="job_waiting_in_front",
            ),
            models.Index(fields=["team", "-id"], name="job_by_team"),
            models.Index(fields=["team"], condition=Q(log_bytes=None), name="job_log_unsettled"),
            models.Index(
                fields=["team"], include=["log_bytes"], condition=Q(log_bytes__gt=0), name="job_log_bytes_by_team"
            ),
            models.Index(
                fields=["finished_at"],
                condition=Q(ttl_seconds__isnull=False, finished_at__isnull=False),
                name="job_to_remove",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def run(self) -> str:
        """The job's name in clusters, folders and tokens."""
        return f"{self.pk}-{self.uid}"

    @property
    def job_spec(self) -> JobSpec:
        return JobSpec.from_json(self.spec)

    @property
    def asked(self) -> Resources:
        return {self.queue.resource: self.slots}

    @property
    def is_finished(self) -> bool:
        return self.phase in lifecycle.TERMINAL

    @property
    def is_on_quota(self) -> bool:
        return self.phase in lifecycle.HOLDS_QUOTA

    @property
    def current_message(self) -> str:
        """The last step's message, or why it waits."""
        return self.wait_reason if self.phase == lifecycle.Phase.QUEUED and self.wait_reason else self.message

    @property
    def is_settled(self) -> bool:
        """Whether nothing changes by itself: finished, or suspended until a user resumes it."""
        return self.is_finished or self.phase == lifecycle.Phase.SUSPENDED

    @cached_property
    def role_views(self) -> tuple[RoleView, ...]:
        """The job's roles. Releases before `roles` knew one role of workers, whose first replica is its anchor."""
        if self.roles is not None:
            return tuple(map(RoleView.from_json, self.roles))
        least = self.spec.get("min_nodes")
        anchor = None if least is None else 0
        per_node = int(self.spec["nproc_per_node"])
        return (RoleView("worker", int(self.spec["nodes"]), True, True, least, anchor, processes=per_node),)

    @property
    def is_elastic(self) -> bool:
        return any(role.least is not None for role in self.role_views)

    @property
    def nodes(self) -> int:
        """The field `nodes`; a framework may have further replicas (`replica_count`)."""
        return int(self.spec["nodes"])

    @property
    def min_nodes(self) -> int | None:
        """The fewest nodes an elastic job continues with; None if it is not elastic."""
        least = self.spec.get("min_nodes")
        return None if least is None else int(least)

    @property
    def replica_count(self) -> int:
        """The number of replicas over all roles, for an elastic job the maximum."""
        return sum(role.replicas for role in self.role_views)

    @property
    def layout(self) -> str:
        """Its replicas and the ranks in each: "2 × 4", or by role: "2 worker + 3 helper"."""
        (first, *others) = self.role_views
        if others:
            return " + ".join(f"{role.replicas} {role.name}" for role in self.role_views)
        return f"{first.replicas} × {first.processes}"

    @property
    def shape(self) -> str:
        """The same with its sum: "2 × 4 = 8 ranks", or "2 worker + 3 helper = 5 ranks"; without it if none is planned."""
        if not self.world_size:
            return self.layout
        return f"{self.layout} = {self.world_size} rank{'' if self.world_size == 1 else 's'}"

    @property
    def span(self) -> str:
        """The number of nodes as displayed: "4", or for an elastic job "2 to 4"."""
        return str(self.nodes) if self.min_nodes is None else f"{self.min_nodes} to {self.nodes}"

    @property
    def nproc_per_node(self) -> int:
        return int(self.spec["nproc_per_node"])

    @property
    def world_size(self) -> int:
        """The number of planned ranks over all roles; 0 where the framework itself decides where they run."""
        return sum(role.replicas * role.processes for role in self.role_views)

    @property
    def command(self) -> list[str]:
        return list(self.spec["command"])

    @property
    def kept_seconds(self) -> int | None:
        """How long after its end it is removed; None: it stays."""
        if self.ttl_seconds is None:
            return None
        return removal.kept_seconds(self.ttl_seconds, drain_seconds=settings.MUSTER_AGENT_DRAIN_SECONDS)

    @property
    def removal_at(self) -> datetime | None:
        """The time from which it is removed; None while it has not ended, and if it stays."""
        if self.kept_seconds is None or self.finished_at is None:
            return None
        return self.finished_at + timedelta(seconds=self.kept_seconds)

    @property
    def removal(self) -> str:
        """The same in words; empty if it stays."""
        return "" if self.kept_seconds is None else removal.words(self.kept_seconds, finished_at=self.finished_at)

    @property
    def on_failure(self) -> str:
        """What happens when a replica fails, in words."""
        return restarts.on_failure(
            int(self.spec["max_retries"]),
            retry_on=self.spec.get("retry_on", ()),
            never_retry_on=self.spec.get("never_retry_on", ()),
            is_elastic=self.is_elastic,
        )

    def launch_id(self, attempt: int) -> int | None:
        """Return the id of an attempt's row; None where a process of the release before launched it."""
        return self.attempts.filter(number=attempt).values_list("pk", flat=True).first()

    def get_absolute_url(self) -> str:
        return f"/jobs/{self.pk}"

    @property
    def public_url(self) -> str:
        return f"{settings.PUBLIC_URL.rstrip('/')}{self.get_absolute_url()}"


class JobEvent(models.Model):
    """One line of a job's history: a step of the lifecycle, or an action of a user."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20)  # submitted, step, cancel, suspend, resume, priority, note
    phase = models.CharField(max_length=10, choices=PHASES)
    attempt = models.PositiveIntegerField(default=0)
    message = models.TextField(blank=True)
    user = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    launch = models.ForeignKey(
        "jobs.Attempt", models.CASCADE, null=True, related_name="+", db_index=False, help_text="the row of its attempt"
    )

    class Meta:
        ordering = ["id"]
        # Postgres looks here for each attempt that is deleted.
        indexes = [models.Index(fields=["launch"], condition=Q(launch__isnull=False), name="event_by_launch")]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Point to the row of its attempt, where there is one."""
        if self.launch_id is None and self.attempt:
            self.launch_id = self.job.launch_id(self.attempt)
        super().save(*args, **kwargs)
