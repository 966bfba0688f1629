"""Checks of clusters by pods. Written by submission/cluster_checks.py when asked for, and by control/cluster_checks.py until they end."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from queues.models import Queue

from .job import new_uid


class ClusterCheck(models.Model):
    """One check: it is driven until it has findings, and then until its pods are deleted."""

    uid = models.CharField(max_length=8, default=new_uid, help_text="part of the names of its pods")
    cluster = models.CharField(max_length=40, help_text="its name in CLUSTERS")
    image = models.TextField(help_text="of its pods")
    queue = models.ForeignKey(
        Queue, models.SET_NULL, null=True, related_name="+", help_text="its pods run where those of this queue do"
    )
    asked_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(
        default=timezone.now, help_text="when a process goes on with it; later while one does"
    )
    findings = models.JSONField(default=list, help_text="about, state, words, remedy and who of each")
    ended_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True, help_text="when its pods were deleted")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "image"], condition=Q(ended_at=None), name="one_check_of_an_image_at_a_time"
            )
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(removed_at=None), name="cluster_check_due"),
            models.Index(fields=["cluster", "-id"], name="cluster_check_newest"),
        ]

    def __str__(self) -> str:
        return f"check {self.pk} of cluster {self.cluster}"
