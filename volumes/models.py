"""A team's volumes. Services write what is wanted, tasks what the cluster says of it."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User

NAME_LENGTH = 40


class AccessMode(models.TextChoices):
    """How many nodes may mount it at once, in the words of Kubernetes."""

    RWX = "ReadWriteMany", "Several nodes read and write"
    ROX = "ReadOnlyMany", "Several nodes read"
    RWO = "ReadWriteOnce", "One node reads and writes"


class State(models.TextChoices):
    UNUSED = "unused", "Made with its first use"
    PENDING = "pending", "Waits for its storage"
    BOUND = "bound", "Bound"
    LOST = "lost", "Its storage is gone"
    REMOVING = "removing", "Is being deleted"


class Volume(models.Model):
    """Where a claim is Muster's own, it is made with the first job that mounts it, and deleted with the volume."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="volumes")
    cluster = models.CharField(max_length=40, help_text="an alias in CLUSTERS")
    name = models.CharField(max_length=NAME_LENGTH)
    # what is wanted
    claim = models.CharField(max_length=253, blank=True, help_text="an existing claim; empty: one of Muster's own")
    size = models.CharField(
        max_length=30, blank=True, help_text="as a Kubernetes quantity; empty for an existing claim"
    )
    storage_class = models.CharField(max_length=253, blank=True, help_text="empty: the cluster's default")
    access_mode = models.CharField(max_length=20, choices=AccessMode, default=AccessMode.RWX)
    mount_path = models.CharField(max_length=255, blank=True, help_text="empty: /muster/volumes/NAME")
    is_read_only = models.BooleanField(default=False)
    removal_asked_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    # what the cluster says
    state = models.CharField(max_length=10, choices=State, default=State.UNUSED)
    capacity = models.CharField(max_length=30, blank=True)
    message = models.TextField(blank=True, help_text="why it waits, in the provisioner's words")
    checked_at = models.DateTimeField(null=True)
    # what agents of replicas that mount it say
    total_bytes = models.BigIntegerField(null=True)
    free_bytes = models.BigIntegerField(null=True)
    written_at = models.DateTimeField(null=True, help_text="when something in its top folder was last written")
    used_at = models.DateTimeField(null=True, help_text="when these were seen")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="volume_name_once_per_team"),
            models.CheckConstraint(condition=Q(access_mode__in=AccessMode.values), name="volume_access_mode_is_known"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="volume_state_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def claim_name(self) -> str:
        """The name of its claim. One of Muster's own begins as all of its objects do, so that no template can name it."""
        return self.claim or f"muster-volume-{self.team.name}.{self.name}"  # a name has no dot, so no two are alike


class JobStorage(models.Model):
    """A claim of one job's own, as its queue's template asks for: noted before it is made, and kept until it is deleted.

    `job` is a number and no reference: a claim with checkpoints may have to be deleted after the job's row.
    """

    job = models.BigIntegerField()
    run = models.CharField(max_length=32, help_text="part of the claim's name")
    job_name = models.CharField(max_length=48)
    kind = models.CharField(max_length=12, help_text="workspace, which goes with the job, or checkpoints")
    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    cluster = models.CharField(max_length=40)
    size = models.CharField(max_length=30)
    storage_class = models.CharField(max_length=253, blank=True)
    namespace = models.CharField(
        max_length=63, blank=True, default="", db_default="", help_text="of the claim; empty: the cluster's own"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "kind"], name="job_storage_once")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.run}"

    @property
    def claim_name(self) -> str:
        return f"muster-job-{self.run}-{self.kind}"


class LeftFolder(models.Model):
    """The folder of a removed job in a claim that is not Muster's to delete. Kept until a keeper says that it is gone."""

    job = models.BigIntegerField()
    run = models.CharField(max_length=32, help_text="the folder's name")
    cluster = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True, help_text="of the claim")
    claim = models.CharField(max_length=253)
    path = models.TextField(blank=True, help_text="in the claim, where the folder is")
    removed_at = models.DateTimeField(default=timezone.now, help_text="the job")
    tries = models.PositiveIntegerField(default=0, help_text="in which it could not be deleted")
    next_try_at = models.DateTimeField(default=timezone.now)
    message = models.TextField(blank=True, help_text="why it could not")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "namespace", "claim", "path", "run"], name="left_folder_once")
        ]
        indexes = [models.Index(fields=["next_try_at"], name="left_folder_due")]

    def __str__(self) -> str:
        return f"{self.path}/{self.run} in {self.claim}".lstrip("/")


class KeeperVisit(models.Model):
    """The keeper of a claim, noted before its pod is made, with what it is told; or the pause after one that failed."""

    cluster = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63, blank=True)
    claim = models.CharField(max_length=253)
    path = models.TextField(blank=True)
    folders = models.JSONField(default=list, help_text="runs whose folders it deletes; none: it only looks")
    volume = models.ForeignKey(Volume, models.SET_NULL, null=True, related_name="+", help_text="which it looks at")
    asked_at = models.DateTimeField(null=True, help_text="since when there may be a pod; null: there is none")
    busy_until = models.DateTimeField(null=True, help_text="a process works on it")
    tries = models.PositiveIntegerField(default=0, help_text="that failed, one after another")
    next_try_at = models.DateTimeField(default=timezone.now)
    message = models.TextField(blank=True, help_text="why the last one failed")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "namespace", "claim"], name="one_keeper_per_claim")]

    def __str__(self) -> str:
        return f"the keeper of {self.claim} on {self.cluster}"
