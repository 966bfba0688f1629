"""Who: users, teams, members with one role each, and API tokens kept as digests."""

import hashlib
import secrets

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

from controlplane import crash


class Role(models.TextChoices):
    """What a member may do in a team; `permissions.py` holds the one table that says so."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMIN = "admin", "Administrator"


class User(AbstractUser):
    """A person. `is_superuser` is the platform administrator."""


class Team(models.Model):
    name = models.SlugField(max_length=40, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="membership_one_per_user_and_team"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_is_known"),
        ]


class TokenQuerySet(models.QuerySet["Token"]):
    def valid(self) -> "TokenQuerySet":
        now = timezone.now()
        return self.filter(revoked_at=None).filter(models.Q(expires_at=None) | models.Q(expires_at__gt=now))


class Token(models.Model):
    """An API token. Its text is shown once; only a digest stays. `prefix` lets a person recognise it."""

    PREFIX = "mst_"

    user = models.ForeignKey(User, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = TokenQuerySet.as_manager()

    @staticmethod
    def digest_of(text: str) -> str:
        # Not a password hash: the text is 256 random bits, so there is nothing to guess.
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def issue(cls, user: User, name: str) -> tuple["Token", str]:
        """A new token and its text, which can not be had again."""
        text = cls.PREFIX + secrets.token_urlsafe(32)
        with crash.around("accounts.token"):
            return cls.objects.create(user=user, name=name, prefix=text[:10], digest=cls.digest_of(text)), text
