"""Users, teams, members with one role each, API tokens kept as digests, and the audit of what they changed."""

import hashlib
import secrets
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

from .roles import SCOPES, SESSION, Grant, Role, Scope

__all__ = [
    "AuditEntry",
    "Membership",
    "RecoveryCode",
    "Role",
    "Scope",
    "SecondFactor",
    "SignIn",
    "Team",
    "Token",
    "User",
]

UNUSABLE = "!"  # prefix of the password field of users without a password (contrib.auth.hashers)
TOKEN_DAYS = 90


class User(AbstractUser):
    """A person, or with `service_team` a program of that team. `is_superuser` marks a platform administrator."""

    # How this user authenticated; token authentication replaces it with the token's. Not a column: it belongs to one
    # request.
    grant: Grant = SESSION

    service_team = models.ForeignKey(
        "Team", models.PROTECT, null=True, blank=True, related_name="service_accounts", help_text="empty for a person"
    )
    first_password_until = models.DateTimeField(
        null=True, blank=True, help_text="somebody else knows this password, and it holds until then; empty: one's own"
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=models.Q(service_team=None) | models.Q(password__startswith=UNUSABLE),
                name="service_account_has_no_password",
            ),
            models.CheckConstraint(
                condition=models.Q(service_team=None) | models.Q(is_superuser=False, is_staff=False),
                name="service_account_is_no_platform_admin",
            ),
        ]

    @property
    def is_service_account(self) -> bool:
        return self.service_team_id is not None


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
        return self.filter(revoked_at=None, expires_at__gt=timezone.now())


class Token(models.Model):
    """An API token. Its text is shown once; only a digest is stored. `prefix` lets a person recognise it."""

    PREFIX = "mst_"

    user = models.ForeignKey(User, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.SUBMIT)
    # Cascade: a deleted team's token must not become one for every team.
    team = models.ForeignKey(
        Team, models.CASCADE, null=True, blank=True, related_name="tokens", help_text="empty for every team"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = TokenQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(scope__in=Scope.values), name="token_scope_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_valid(self) -> bool:
        return self.revoked_at is None and self.expires_at > timezone.now()

    @property
    def grant(self) -> Grant:
        acts = SCOPES.get(self.scope, frozenset())
        return Grant(acts, self.team_id, self.pk, self.prefix, self.scope, self.expires_at)

    # New digests use the first, all are accepted: a new one is put first, and the old one can go a year later, with its
    # last token.
    DIGESTS: tuple[str, ...] = ("sha256",)

    @classmethod
    def digests_of(cls, text: str) -> list[str]:
        # Not a password hash: the text is 256 random bits, so there is nothing to guess.
        return [hashlib.new(name, text.encode()).hexdigest() for name in cls.DIGESTS]

    @classmethod
    def digest_of(cls, text: str) -> str:
        return cls.digests_of(text)[0]

    @classmethod
    def issue(
        cls,
        user: User,
        name: str,
        *,
        scope: str = Scope.SUBMIT,
        team: Team | None = None,
        expires_at: datetime | None = None,
    ) -> tuple["Token", str]:
        """Create a token; return it with its text, which cannot be recovered later.

        No permission check: `tokens.issue` does that.
        """
        text = cls.PREFIX + secrets.token_urlsafe(32)
        row = cls(user=user, name=name, prefix=text[:10], digest=cls.digest_of(text), scope=scope, team=team)
        row.expires_at = expires_at or timezone.now() + timedelta(days=TOKEN_DAYS)
        row.save(force_insert=True)
        return row, text


class SignIn(AbstractBaseSession):
    """A browser session, as Django keeps it, plus its user, so that people can list theirs and end them."""

    user = models.ForeignKey(User, models.CASCADE, null=True, related_name="sign_ins", help_text="empty: nobody yet")

    @classmethod
    def get_session_store_class(cls) -> type[Any]:
        return cast(type[Any], import_module(settings.SESSION_ENGINE).SessionStore)  # lazily: it needs this class


class SecondFactor(models.Model):
    """A person's authenticator: its secret encrypted, and the attempts made with it. Not required until confirmed."""

    user = models.OneToOneField(User, models.CASCADE, related_name="second_factor")
    sealed = models.TextField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    last_step = models.BigIntegerField(default=0, help_text="the half minute of the last code used; none is used twice")
    failures = models.PositiveIntegerField(default=0, help_text="wrong codes since the last right one")
    failed_at = models.DateTimeField(null=True, blank=True)


class RecoveryCode(models.Model):
    """A single-use way to sign in without the authenticator."""

    user = models.ForeignKey(User, models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True, blank=True)


class AuditEntry(models.Model):
    """One audit entry: who changed what, from where, before and after.

    The database itself refuses to change or delete a row; only the two references become empty when their user or team
    is deleted, and the names stay.
    """

    at = models.DateTimeField(default=timezone.now, editable=False)
    actor = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    actor_name = models.CharField(max_length=150, blank=True, help_text="empty: from the server's own command line")
    token_prefix = models.CharField(max_length=12, blank=True, help_text="empty: not with a token")
    act = models.CharField(max_length=40)
    target_kind = models.CharField(max_length=20, blank=True)
    target_id = models.CharField(max_length=40, blank=True)
    target_name = models.CharField(max_length=150, blank=True)
    team = models.ForeignKey(Team, models.SET_NULL, null=True, related_name="+")
    team_name = models.CharField(max_length=40, blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    ip = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["team", "-id"], name="audit_by_team"),
            models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
            models.Index(fields=["act", "-id"], name="audit_by_act"),
        ]
