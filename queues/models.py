"""Queues: each belongs to a team, points at one cluster and holds one quota."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User

from .admission import Policy
from .resources import Resources

POLICIES = [(one.value, one.value.replace("_", " ")) for one in Policy]


class Resource(models.TextChoices):
    """What one training process takes: a GPU, or where there are none a CPU slot."""

    GPU = "gpu", "GPUs"
    CPU = "cpu", "CPU slots"


class Flavor(models.Model):
    """One kind of devices of one cluster: what quota is counted in. Queues that have it share it as their teams' quotas say."""

    name = models.SlugField(max_length=40, unique=True)
    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    resource = models.CharField(max_length=3, choices=Resource, default=Resource.GPU)
    gpus_per_node = models.PositiveIntegerField(default=0, help_text="0 where replicas are not bound to GPU nodes")
    node_selector = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField()), blank=True,
        help_text="labels that its nodes have; empty: all nodes of the cluster",
    )  # fmt: skip
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "resource", "gpus_per_node", "node_selector"], name="flavor_is_one_kind"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Cohort(models.Model):
    """Teams, or cohorts of teams, that lend each other the quota they do not use."""

    name = models.SlugField(max_length=40, unique=True)
    parent = models.ForeignKey("self", models.PROTECT, null=True, related_name="children")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class TeamQuota(models.Model):
    """How much of a flavor a team has, and how much of it goes to others and from others to it."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="quotas")
    flavor = models.ForeignKey(Flavor, models.PROTECT, related_name="quotas")
    cohort = models.ForeignKey(
        Cohort, models.PROTECT, null=True, related_name="quotas", help_text="null: it shares with nobody"
    )
    nominal = models.PositiveIntegerField(help_text="that belongs to the team")
    borrowing_limit = models.PositiveIntegerField(null=True, help_text="beyond it at most; null: no limit")
    lending_limit = models.PositiveIntegerField(null=True, help_text="of it to others at most; null: no limit")
    weight = models.FloatField(default=1.0, help_text="its part of what is lent, relative to others'")
    version = models.PositiveIntegerField(default=1, help_text="grows with each change")

    class Meta:
        ordering = ["team__name", "flavor__name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "flavor"], name="team_has_one_quota_of_a_flavor"),
            models.CheckConstraint(condition=Q(weight__gt=0), name="weight_is_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.team.name}/{self.flavor.name}"


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
    template = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField()), blank=True,
        help_text="what its jobs' pods are beyond fields of a job (jobs/core/pod_template.py)",
    )  # fmt: skip
    description = models.CharField(max_length=200, blank=True, help_text="what it is for, in a sentence")
    is_open = models.BooleanField(default=True)
    policy = models.CharField(
        max_length=12, choices=POLICIES, default=Policy.STRICT,
        db_default=Policy.STRICT.value, help_text="whether a job may start before one that came earlier and does not fit",
    )  # fmt: skip
    flavor = models.ForeignKey(
        Flavor, models.PROTECT, null=True, related_name="queues",
        help_text="that it takes from its team's quota; null: it stands by itself",
    )  # fmt: skip
    borrowing_limit = models.PositiveIntegerField(
        null=True, default=0, db_default=0, help_text="how much beyond its own it may take of its team; null: no limit"
    )
    preempts = models.BooleanField(
        default=False, db_default=False,
        help_text="whether its jobs take the place of those of a lower priority in it",
    )  # fmt: skip
    drains = models.BooleanField(
        default=False, db_default=False, help_text="whether running jobs give their quota back while it is closed"
    )
    # Limits (queues/rules.py); null: none.
    highest_priority = models.SmallIntegerField(null=True)
    largest_job = models.PositiveIntegerField(null=True, help_text="slots of one job")
    longest_seconds = models.PositiveIntegerField(null=True, help_text="deadline of a job")
    slots_per_user = models.PositiveIntegerField(null=True, help_text="that the jobs of one user hold at once")
    budget_hours = models.PositiveIntegerField(null=True, help_text="hours times slots in a calendar month (UTC)")
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


class RecentUse(models.Model):
    """What the jobs of a queue that shares quota held lately (jobs/control/recent_use.py)."""

    queue = models.OneToOneField(Queue, models.CASCADE, primary_key=True, related_name="+")
    slots = models.FloatField(help_text="that its jobs held on average; later moments count more")
    noted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.slots:.1f} of {self.queue_id}"


class QueueVersion(models.Model):
    """What a queue says of its jobs' pods, as it was from one change to the next. Submitted jobs keep theirs."""

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    content = models.JSONField(help_text="defaults, template and gpus_per_node of the queue")
    digest = models.CharField(max_length=64, help_text="sha256 of the content")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    check_state = models.CharField(
        max_length=12, blank=True, default="", help_text="what the cluster says of it: valid, invalid or not_checked"
    )
    check_words = models.TextField(blank=True, default="")

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["queue", "number"], name="queue_version_once")]
        indexes = [models.Index(fields=["queue", "digest"], name="queue_version_by_content")]

    def __str__(self) -> str:
        return f"version {self.number} of {self.queue.name}"


class AllowedObject(models.Model):
    """An object of a cluster that the pods of a team's jobs may name. Platform administrators keep the list."""

    class Kind(models.TextChoices):
        SERVICE_ACCOUNT = "service_account", "Service account"
        TOKEN = "token", "Service account with its token"
        PULL_SECRET = "pull_secret", "Pull secret"
        SECRET = "secret", "Secret"
        CONFIG_MAP = "config_map", "ConfigMap"
        CLAIM = "claim", "Volume claim"

    team = models.ForeignKey(Team, models.CASCADE, related_name="allowed_objects")
    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    kind = models.CharField(max_length=16, choices=Kind)
    name = models.CharField(max_length=253)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["cluster", "kind", "name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "cluster", "kind", "name"], name="allowed_object_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ExcludedNode(models.Model):
    """A node that new pods of Muster stay away from, as platform administrators decided. Those on it go on."""

    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    name = models.CharField(max_length=253)
    reason = models.CharField(max_length=500)
    excluded_at = models.DateTimeField(default=timezone.now, editable=False)
    excluded_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    readmitted_at = models.DateTimeField(null=True)
    readmitted_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["cluster", "name", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "name"], condition=Q(readmitted_at=None), name="node_excluded_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


class Ceiling(models.Model):
    """How much all queues of a team together may hold of one resource, as platform administrators allow it."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="ceilings")
    resource = models.CharField(max_length=3, choices=Resource)
    slots = models.PositiveIntegerField(null=True, blank=True, help_text="null: no ceiling")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "resource"], name="ceiling_once_per_resource")]

    def __str__(self) -> str:
        return f"{self.team.name}/{self.resource}"


class QuotaRequest(models.Model):
    """Somebody asks for more: of a queue, or of what a team has of a flavor. `has`: how much there was then."""

    class State(models.TextChoices):
        OPEN = "open", "Open"
        GRANTED = "granted", "Granted"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"

    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    queue = models.ForeignKey(Queue, models.CASCADE, null=True, related_name="+")
    flavor = models.ForeignKey(Flavor, models.CASCADE, null=True, related_name="+")
    has = models.PositiveIntegerField()
    wanted = models.PositiveIntegerField(help_text="in all, not how many more")
    why = models.CharField(max_length=500)
    asked_at = models.DateTimeField(default=timezone.now, editable=False)
    asked_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    state = models.CharField(max_length=9, choices=State, default=State.OPEN)
    granted = models.PositiveIntegerField(null=True, help_text="in all; may be less than was wanted")
    answer = models.CharField(max_length=500, blank=True)
    decided_at = models.DateTimeField(null=True)
    decided_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(queue__isnull=False, flavor=None) | Q(queue=None, flavor__isnull=False),
                name="request_of_queue_or_flavor",
            ),
            models.UniqueConstraint(fields=["queue"], condition=Q(state="open"), name="queue_is_asked_for_once"),
            models.UniqueConstraint(
                fields=["team", "flavor"], condition=Q(state="open"), name="flavor_is_asked_for_once"
            ),
        ]

    def __str__(self) -> str:
        return f"request {self.pk} of team {self.team.name}"


class AddedCluster(models.Model):
    """A cluster of Kubernetes that platform administrators added, beside those of the setting MUSTER_CLUSTERS."""

    name = models.SlugField(max_length=40, unique=True)
    server = models.CharField(
        max_length=300,
        blank=True,
        help_text="where its API server is; empty: the cluster that Muster's own pods run in",
    )
    sealed = models.TextField(
        blank=True, help_text="a kubeconfig as JSON, encrypted; empty: the account of Muster's own pods"
    )
    identity = models.CharField(
        max_length=64, blank=True, help_text="of the cluster's keys, to tell one that is there twice"
    )
    options = models.JSONField(default=dict, help_text="OPTIONS, as in MUSTER_CLUSTERS, without KUBECONFIG and CONTEXT")
    version = models.PositiveIntegerField(default=1, help_text="grows with each change")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)
    changed_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class TeamNamespace(models.Model):
    """The namespace of a cluster in which a team's jobs are made, for jobs that were submitted while it held.

    A namespace has one team at a time. It is bound here and never by a label, which others could set.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    namespace = models.CharField(max_length=63)
    bound_at = models.DateTimeField(default=timezone.now, editable=False)
    bound_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    ended_at = models.DateTimeField(null=True, help_text="since when the team's new jobs are made elsewhere")
    ended_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["cluster", "team__name", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "cluster"], condition=Q(ended_at=None), name="team_has_one_namespace"
            ),
            models.UniqueConstraint(
                fields=["cluster", "namespace"], condition=Q(ended_at=None), name="namespace_has_one_team"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}"
