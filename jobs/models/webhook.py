"""Addresses that receive events of a team's jobs, and the deliveries.

A delivery is written in the transaction of the step that it reports, so neither exists without the other. Its row is
the message, the queue and the history: due while `next_try_at` is set, then delivered or given up.
"""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User

NAME_LENGTH = 40


class Webhook(models.Model):
    """Where a team has events sent. The URL may itself be a secret (Slack's are), so it is stored encrypted."""

    class Format(models.TextChoices):
        JSON = "json", "JSON, signed"
        SLACK = "slack", "Slack message"

    team = models.ForeignKey(Team, models.CASCADE, related_name="webhooks")
    name = models.CharField(max_length=NAME_LENGTH)
    host = models.CharField(max_length=270, help_text="host and port of the URL, which alone is shown")
    sealed_url = models.TextField(help_text="encrypted (webhooks/sealing.py)")
    format = models.CharField(max_length=8, choices=Format.choices, default=Format.JSON)
    events = ArrayField(models.CharField(max_length=8), help_text="start, end, failure")
    all_jobs = models.BooleanField(default=True, help_text="false: only jobs that name it")
    is_active = models.BooleanField(default=True)
    sealed_secret = models.TextField(help_text="signs what is sent; encrypted")
    sealed_old_secret = models.TextField(blank=True, default="")
    old_secret_until = models.DateTimeField(null=True, help_text="until then the one before signs as well")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="webhook_name_once_per_team"),
            models.CheckConstraint(condition=~Q(events=[]), name="webhook_has_events"),
            models.CheckConstraint(condition=Q(format__in=["json", "slack"]), name="webhook_format_is_known"),
        ]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One event for one webhook. `uid` stays the same however often it is sent."""

    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    job = models.ForeignKey("jobs.Job", models.CASCADE, null=True, related_name="deliveries")  # null: a test
    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    event = models.CharField(max_length=12)
    attempt = models.PositiveIntegerField(default=0, help_text="of the job, when it happened")
    payload = models.JSONField(help_text="frozen when it happened")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    gave_up_at = models.DateTimeField(null=True)
    status_code = models.PositiveSmallIntegerField(null=True, help_text="of the newest try; null: no answer")
    error = models.CharField(max_length=300, blank=True, help_text="of the newest try")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["webhook", "job", "event", "attempt"], name="delivery_once_per_event"),
            models.CheckConstraint(
                condition=Q(next_try_at__isnull=False, delivered_at=None, gave_up_at=None)
                | Q(next_try_at=None, delivered_at__isnull=False, gave_up_at=None)
                | Q(next_try_at=None, delivered_at=None, gave_up_at__isnull=False),
                name="delivery_is_due_or_settled",
            ),
        ]
        indexes = [
            models.Index("next_try_at", condition=Q(next_try_at__isnull=False), name="delivery_due"),
            models.Index(fields=["webhook", "-id"], name="delivery_by_webhook"),
        ]

    @property
    def state(self) -> str:
        """Return `waiting`, `delivered` or `gave_up`."""
        if self.delivered_at:
            return "delivered"
        return "gave_up" if self.gave_up_at else "waiting"
