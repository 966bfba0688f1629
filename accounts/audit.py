"""The audit log: who did what to what, before, after and from where.

`record` is called inside the transaction of the change, so that neither exists without the other. Secrets never get in:
callers name the fields they pass, and any field named like a secret is struck out all the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet

from common.errors import NotAllowed
from common.http.request_origin import origin
from common.signals import doorbell
from common.telemetry import log_config

from .models import AuditEntry, Team, Token, User
from .permissions import Act, is_platform_admin, teams_where

VALUE_LENGTH = 300
HIDDEN = "(hidden)"
_SECRET_WORDS = ("password", "secret", "token_text", "digest", "key", "env", "authorization", "cookie")


class AuditAction(StrEnum):
    LOGIN = "login"
    LOGIN_FAILED = "login.failed"
    LOGOUT = "logout"
    PASSWORD_CHANGED = "password.change"  # noqa: S105 - a name
    PASSWORD_GIVEN = "password.give"  # noqa: S105 - a name
    SESSION_ENDED = "session.end"
    FACTOR_ADDED = "factor.add"
    FACTOR_REMOVED = "factor.remove"
    FACTOR_CODES = "factor.codes"
    FACTOR_CODE_USED = "factor.recover"
    TOKEN_MADE = "token.make"  # noqa: S105 - a name
    TOKEN_REVOKED = "token.revoke"  # noqa: S105 - a name
    PERSON_MADE = "person.make"
    PERSON_CHANGED = "person.change"
    TEAM_MADE = "team.make"
    MEMBER_ADDED = "member.add"
    MEMBER_CHANGED = "member.change"
    MEMBER_REMOVED = "member.remove"
    SERVICE_MADE = "service.make"
    SERVICE_REMOVED = "service.remove"
    AUDIT_TRIMMED = "audit.trim"
    RESTORED = "installation.restore"
    QUEUE_MADE = "queue.make"
    QUEUE_CHANGED = "queue.change"
    CEILING_CHANGED = "ceiling.change"
    FLAVOR_MADE = "flavor.make"
    FLAVOR_REMOVED = "flavor.remove"
    COHORT_CHANGED = "cohort.change"
    COHORT_REMOVED = "cohort.remove"
    QUOTA_CHANGED = "quota.change"
    QUOTA_REMOVED = "quota.remove"
    QUOTA_ASKED = "quota.ask"
    QUOTA_ANSWERED = "quota.answer"
    JOB_SUBMITTED = "job.submit"
    JOB_CANCELLED = "job.cancel"
    JOB_SUSPENDED = "job.suspend"
    JOB_RESUMED = "job.resume"
    JOB_PRIORITY = "job.priority"
    JOB_LOG_DELETED = "job.delete-log"
    JOB_REMOVED = "job.remove"
    WEBHOOK_MADE = "webhook.make"
    WEBHOOK_CHANGED = "webhook.change"
    WEBHOOK_ROTATED = "webhook.rotate"
    WEBHOOK_REMOVED = "webhook.remove"
    WEBHOOK_TESTED = "webhook.test"
    WEBHOOK_REPEATED = "webhook.repeat"
    SECRET_MADE = "secret.make"  # noqa: S105 - a name
    SECRET_CHANGED = "secret.change"  # noqa: S105 - a name
    SECRET_REMOVED = "secret.remove"  # noqa: S105 - a name
    VOLUME_MADE = "volume.make"
    VOLUME_CHANGED = "volume.change"
    VOLUME_REMOVED = "volume.remove"
    OBJECT_ALLOWED = "object.allow"
    OBJECT_FORBIDDEN = "object.forbid"
    NODE_EXCLUDED = "node.exclude"
    NODE_READMITTED = "node.readmit"
    CLUSTER_ADDED = "cluster.add"
    CLUSTER_CHANGED = "cluster.change"
    CLUSTER_REMOVED = "cluster.remove"
    NAMESPACE_BOUND = "namespace.bind"
    NAMESPACE_RELEASED = "namespace.release"
    CLUSTER_CHECKED = "cluster.check"


# After these a user may have lost the access that an open stream relies on; `on` is the user, or one of their tokens.
MAY_END_ACCESS = frozenset(
    {
        AuditAction.LOGOUT,
        AuditAction.PASSWORD_CHANGED,
        AuditAction.PASSWORD_GIVEN,
        AuditAction.SESSION_ENDED,
        AuditAction.FACTOR_ADDED,
        AuditAction.FACTOR_REMOVED,
        AuditAction.TOKEN_REVOKED,
        AuditAction.PERSON_CHANGED,
        AuditAction.MEMBER_CHANGED,
        AuditAction.MEMBER_REMOVED,
        AuditAction.SERVICE_REMOVED,
    }
)

# The phrase on pages, between the actor and the target.
WORDS: dict[str, str] = {
    AuditAction.LOGIN: "signed in as",
    AuditAction.LOGIN_FAILED: "failed to sign in as",
    AuditAction.LOGOUT: "signed out as",
    AuditAction.PASSWORD_CHANGED: "changed the password of",
    AuditAction.PASSWORD_GIVEN: "gave a new password to",
    AuditAction.SESSION_ENDED: "ended sessions of",
    AuditAction.FACTOR_ADDED: "set up the second factor of",
    AuditAction.FACTOR_REMOVED: "removed the second factor of",
    AuditAction.FACTOR_CODES: "created new recovery codes for",
    AuditAction.FACTOR_CODE_USED: "used a recovery code of",
    AuditAction.TOKEN_MADE: "created token",
    AuditAction.TOKEN_REVOKED: "revoked token",
    AuditAction.PERSON_MADE: "created user",
    AuditAction.PERSON_CHANGED: "changed user",
    AuditAction.TEAM_MADE: "created team",
    AuditAction.MEMBER_ADDED: "added member",
    AuditAction.MEMBER_CHANGED: "changed the role of",
    AuditAction.MEMBER_REMOVED: "removed member",
    AuditAction.SERVICE_MADE: "created service account",
    AuditAction.SERVICE_REMOVED: "removed service account",
    AuditAction.AUDIT_TRIMMED: "deleted old audit entries",
    AuditAction.RESTORED: "restored this installation from a backup",
    AuditAction.QUEUE_MADE: "created queue",
    AuditAction.QUEUE_CHANGED: "changed queue",
    AuditAction.CEILING_CHANGED: "changed the quota ceiling of team",
    AuditAction.FLAVOR_MADE: "made flavor",
    AuditAction.FLAVOR_REMOVED: "removed flavor",
    AuditAction.COHORT_CHANGED: "changed cohort",
    AuditAction.COHORT_REMOVED: "removed cohort",
    AuditAction.QUOTA_CHANGED: "changed the shared quota of team",
    AuditAction.QUOTA_REMOVED: "removed a shared quota of team",
    AuditAction.QUOTA_ASKED: "asked for more quota of team",
    AuditAction.QUOTA_ANSWERED: "closed a request for quota of team",
    AuditAction.JOB_SUBMITTED: "submitted job",
    AuditAction.JOB_CANCELLED: "cancelled job",
    AuditAction.JOB_SUSPENDED: "suspended job",
    AuditAction.JOB_RESUMED: "resumed job",
    AuditAction.JOB_PRIORITY: "changed the priority of job",
    AuditAction.JOB_LOG_DELETED: "deleted the log of job",
    AuditAction.JOB_REMOVED: "removed the finished job",
    AuditAction.WEBHOOK_MADE: "created webhook",
    AuditAction.WEBHOOK_CHANGED: "changed webhook",
    AuditAction.WEBHOOK_ROTATED: "rotated the secret of webhook",
    AuditAction.WEBHOOK_REMOVED: "removed webhook",
    AuditAction.WEBHOOK_TESTED: "sent a test to webhook",
    AuditAction.WEBHOOK_REPEATED: "repeated a delivery of webhook",
    AuditAction.SECRET_MADE: "created secret",
    AuditAction.SECRET_CHANGED: "entered a new version of secret",
    AuditAction.SECRET_REMOVED: "removed secret",
    AuditAction.VOLUME_MADE: "created volume",
    AuditAction.VOLUME_CHANGED: "changed volume",
    AuditAction.VOLUME_REMOVED: "asked for the deletion of volume",
    AuditAction.OBJECT_ALLOWED: "allowed an object of a cluster to team",
    AuditAction.OBJECT_FORBIDDEN: "forbade an object of a cluster to team",
    AuditAction.NODE_EXCLUDED: "excluded node",
    AuditAction.NODE_READMITTED: "readmitted node",
    AuditAction.CLUSTER_ADDED: "added cluster",
    AuditAction.CLUSTER_CHANGED: "changed cluster",
    AuditAction.CLUSTER_REMOVED: "removed cluster",
    AuditAction.CLUSTER_CHECKED: "began a check by pods of cluster",
    AuditAction.NAMESPACE_BOUND: "gave a namespace to team",
    AuditAction.NAMESPACE_RELEASED: "took its namespace from team",
}


@contextmanager
def change() -> Iterator[None]:
    """Open the transaction of a change and its entry, for interfaces that write both."""
    with transaction.atomic():
        yield


def record(
    act: str,
    *,
    by: User | None,
    on: Model | None = None,
    team: Team | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Write one entry. `by` None is the server's own command line, or no known user (a failed login)."""
    here = origin()
    entry = AuditEntry.objects.create(
        act=act,
        actor=by,
        actor_name=by.get_username() if by else "",
        token_prefix=by.grant.prefix if by else "",
        target_kind=_kind(on),
        target_id=str(on.pk) if on else "",
        target_name=_name(on),
        team=team,
        team_name=team.name if team else "",
        before=clean(before or {}),
        after=clean(after or {}),
        ip=here.ip,
        user_agent=here.user_agent,
    )
    transaction.on_commit(lambda: _log_event(entry))
    if act in MAY_END_ACCESS and isinstance(on, User | Token):
        doorbell.access_changed(on.pk if isinstance(on, User) else on.user_id)
    return entry


def _log_event(entry: AuditEntry) -> None:
    """Log the entry as an event, which may be shipped elsewhere; only after its commit."""
    names = ("actor_name", "token_prefix", "target_kind", "target_id", "target_name", "team_name", "ip", "user_agent")
    fields = {name: getattr(entry, name) for name in names}
    log_config.event(entry.act, audit_id=entry.pk, before=entry.before, after=entry.after, **fields)


def entries(user: User) -> QuerySet[AuditEntry]:
    """Return what `user` may read: platform administrators all, others the entries of the teams they administer.

    Raises NotAllowed where they administer none.
    """
    if is_platform_admin(user):
        return AuditEntry.objects.all()
    teams = teams_where(user, Act.MANAGE)
    if not teams:
        raise NotAllowed(
            f"{user.get_username()} does not administer a team, or this token does not allow it; only administrators may read the audit"
        )
    return AuditEntry.objects.filter(team_id__in=teams)


def clean(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON that Postgres accepts: secrets struck out, long text cut."""
    return {_text(name): HIDDEN if _is_secret(str(name)) else _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping):
        return clean(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return _text(value)


def _text(value: object) -> str:
    return str(value).replace("\0", "")[:VALUE_LENGTH]


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def _kind(on: Model | None) -> str:
    if isinstance(on, User) and on.is_service_account:
        return "service account"
    return str(on._meta.verbose_name)[:20] if on else ""


def _name(on: Model | None) -> str:
    for field in ("username", "name"):
        if value := getattr(on, field, ""):
            return _text(value)[:150]
    return ""
