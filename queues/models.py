"""Queues: each belongs to a team, points at one cluster and holds one quota."""

from django.db import models
from django.utils import timezone

from accounts.models import Team

from .resources import Resources


class Resource(models.TextChoices):
    """What one training process takes: a GPU, or where there are none a CPU slot."""

    GPU = "gpu", "GPUs"
    CPU = "cpu", "CPU slots"


class Queue(models.Model):
    name = models.SlugField(max_length=40, unique=True)
    team = models.ForeignKey(Team, models.PROTECT, related_name="queues")
    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    resource = models.CharField(max_length=3, choices=Resource, default=Resource.CPU)
    nominal = models.PositiveIntegerField(help_text="how many processes may hold a slot at once")
    gpus_per_node = models.PositiveIntegerField(default=0, help_text="0 where replicas are not bound to GPU nodes")
    defaults = models.JSONField(
        default=dict, blank=True, help_text="fields of a job that hold unless it says otherwise"
    )
    description = models.CharField(max_length=200, blank=True, help_text="what it is for, in a sentence")
    is_open = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(resource__in=Resource.values), name="queue_resource_is_known")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def quota(self) -> Resources:
        return {self.resource: self.nominal}


class Ceiling(models.Model):
    """How much all queues of a team together may hold of one resource, as platform administrators allow it."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="ceilings")
    resource = models.CharField(max_length=3, choices=Resource)
    slots = models.PositiveIntegerField(null=True, blank=True, help_text="null: no ceiling")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "resource"], name="ceiling_once_per_resource")]

    def __str__(self) -> str:
        return f"{self.team.name}/{self.resource}"
