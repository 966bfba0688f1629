"""Nodes of clusters as they were last listed, and how each changed. Written by control/node_rows.py alone; no other row refers to them."""

from django.db import models
from django.db.models import Q

from jobs.core.node_seen import MOST_NAME, ChangeKind


class ClusterLook(models.Model):
    """When the nodes of a cluster were last listed; its lock orders the writers of that cluster's nodes."""

    cluster = models.CharField(max_length=40, primary_key=True, help_text="its name in CLUSTERS")
    asked_at = models.DateTimeField(null=True, help_text="when it was last asked, with or without an answer")
    seen_at = models.DateTimeField(null=True, help_text="when it last listed its nodes; null: never")
    problem = models.TextField(blank=True, help_text="why it did not when it was last asked; empty if it did")

    def __str__(self) -> str:
        return self.cluster


class ClusterNode(models.Model):
    """One node, also while it is gone. Rows of nodes that did not change are not written."""

    cluster = models.CharField(max_length=40, help_text="its name in CLUSTERS")
    name = models.CharField(max_length=MOST_NAME)
    number = models.PositiveIntegerField(help_text="within the cluster; stands for its name where names are not shown")
    first_seen_at = models.DateTimeField()
    changed_at = models.DateTimeField(help_text="when this row was last written")
    gone_at = models.DateTimeField(null=True, help_text="when it was first missing; null: it is there")
    silence = models.TextField(blank=True, help_text="why it is not ready; empty: it is")
    silent_since = models.DateTimeField(null=True, help_text="when it was first seen so")
    is_cordoned = models.BooleanField(default=False)
    devices = models.JSONField(default=dict, help_text="what pods may be given of it: resource to count")
    gpus = models.PositiveIntegerField(default=0, help_text="their sum")
    others = models.PositiveIntegerField(
        null=True, help_text="how many of them pods hold that are not Muster's; null: that is not known"
    )
    product = models.CharField(max_length=100, blank=True)
    levels = models.JSONField(default=dict, help_text="its values of labels that queues' templates name as levels")
    taints = models.JSONField(default=list, help_text="in words")
    troubles = models.JSONField(default=list, help_text="conditions such as DiskPressure")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="node_once_per_cluster"),
            models.UniqueConstraint(fields=["cluster", "number"], name="node_number_once_per_cluster"),
        ]
        indexes = [models.Index(fields=["gone_at"], condition=Q(gone_at__isnull=False), name="node_gone")]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class NodeHistory(models.Model):
    """One change of a node; kept for a month, and the newest ones of each node only."""

    KINDS = [(kind.value, kind.value.replace("_", " ")) for kind in ChangeKind]

    node = models.ForeignKey(ClusterNode, models.CASCADE, related_name="history", db_index=False)
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=KINDS)
    words = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["node", "-id"], name="node_history"),
            models.Index(fields=["at"], name="node_history_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id}: {self.kind}"
