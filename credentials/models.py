"""A team's secrets and their versions. Values are encrypted; only a launch decrypts them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Team, User

NAME_LENGTH = 40


class Kind(models.TextChoices):
    """How the pods of a job get it."""

    ENV = "env", "Environment variables"
    FILE = "file", "Files"
    REGISTRY = "registry", "Registry login"


class TeamSecret(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=NAME_LENGTH)
    kind = models.CharField(max_length=8, choices=Kind)
    version = models.PositiveIntegerField(default=1, help_text="the newest, which the next attempt gets")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["team", "name"], name="team_secret_name_once_per_team"),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="team_secret_kind_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def keys(self) -> list[str]:
        """The names of its newest values."""
        return next((list(one.keys) for one in self.versions.all() if one.number == self.version), [])


class SecretVersion(models.Model):
    """Values as they were from `created_at` until the next version. They are forgotten once no attempt uses them."""

    secret = models.ForeignKey(TeamSecret, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    keys = ArrayField(models.CharField(max_length=100), help_text="names of variables or files")
    sealed = models.TextField(blank=True, help_text="values by key, encrypted (sealing.py); empty: forgotten")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["secret", "number"], name="secret_version_once")]

    def __str__(self) -> str:
        return f"{self.secret.name} v{self.number}"
