"""A second factor: six digits that a person's authenticator makes from a secret and the time (TOTP, RFC 6238).

The secret is encrypted at rest, a code works once, and wrong codes pause the account's codes from any address: only
someone who knows the password gets that far, so nobody can block a colleague. Recovery codes work without the
authenticator.
"""

import hashlib
import secrets
from datetime import datetime, timedelta

import pyotp
from django.conf import settings
from django.utils import timezone
from pyotp.utils import strings_equal

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Membership, RecoveryCode, Role, SecondFactor, User
from common.encryption import InvalidToken, fernet
from common.errors import Conflict, InvalidInput, Problem

WAY = "/account/second-factor"
WORDS = f"your account needs a second factor; sign in on the web and set it up at {WAY} first"
CODES = 10
STEP_SECONDS = 30
_PURPOSE = b"muster.second.factor"
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters that look alike
_GROUPS, _GROUP = 4, 6  # 118 random bits, so that a plain digest hides a code as well as a slow one


class TooManyCodes(Exception):
    """Codes are not checked for some seconds."""

    def __init__(self, seconds: int):
        super().__init__(f"too many wrong codes; try again in {max(1, seconds // 60)} minutes, or ask for help")
        self.seconds = seconds


def is_asked(user: User) -> bool:
    """Return whether the password alone is not enough."""
    return settings.MUSTER_SECOND_FACTOR != "off" and _confirmed(user) is not None


def is_missing(user: User) -> bool:
    """Return whether the installation requires one of this person, who has none."""
    return is_required(user) and _confirmed(user) is None


def is_required(user: User) -> bool:
    match settings.MUSTER_SECOND_FACTOR:
        case "all":
            return True
        case "admins":
            return user.is_superuser or Membership.objects.filter(user=user, role=Role.ADMIN).exists()
    return False


def begin(user: User) -> str:
    """Store and return a secret for the authenticator; it takes effect once a code of it is confirmed.

    Raises Conflict.
    """
    if settings.MUSTER_SECOND_FACTOR == "off":
        raise Conflict("second factors are turned off in this installation (MUSTER_SECOND_FACTOR)", "act", "begin")
    secret = pyotp.random_base32()
    with audit.change():
        if (row := _row(user)) and row.confirmed_at:
            raise Conflict("you already have a second factor; remove it first", "act", "begin")
        SecondFactor.objects.update_or_create(user=user, defaults={"sealed": _seal(secret)})
    return secret


def pending(user: User) -> str:
    """Return the secret that waits for its first code, or ""."""
    row = SecondFactor.objects.filter(user=user, confirmed_at=None).first()
    return _open(row) if row else ""


def address(user: User, secret: str) -> str:
    """Return the URI that authenticators read: opened on a telephone it adds the account there."""
    return pyotp.TOTP(secret).provisioning_uri(name=user.get_username(), issuer_name="Muster")


def confirm(user: User, code: str) -> list[str]:
    """Require the second factor from now on; return recovery codes, which cannot be recovered later.

    Raises InvalidInput for a wrong code, and Conflict where nothing waits for one.
    """
    with audit.change():
        row = _row(user)
        if row is None or row.confirmed_at:
            raise Conflict("there is no second factor to confirm; start again", "act", "confirm")
        step = matching_step(_open(row), code, now=timezone.now(), after=row.last_step)
        if not step:
            raise InvalidInput(
                Problem("code", None, "does not match the authenticator's current code; check that its clock is right")
            )
        row.confirmed_at, row.last_step, row.failures = timezone.now(), step, 0
        row.save()
        audit.record(AuditAction.FACTOR_ADDED, by=user, on=user)
        return _make_codes(user)


def check(user: User, code: str) -> bool:
    """Use a code up; return whether it was right. Raises TooManyCodes without having checked it."""
    now = timezone.now()
    with audit.change():
        row = _row(user)
        if row is None or row.confirmed_at is None:
            return False
        if seconds := pause(row.failures, row.failed_at, now=now):
            raise TooManyCodes(seconds)
        is_right = _use_step(row, code, now) or _use_recovery_code(user, code, now)
        row.failures, row.failed_at = (0, None) if is_right else (row.failures + 1, now)
        row.save()
    return is_right


def new_codes(user: User) -> list[str]:
    """Return new recovery codes; the old ones stop working. Raises Conflict without a second factor."""
    with audit.change():
        if (row := _row(user)) is None or row.confirmed_at is None:
            raise Conflict("you have no second factor; set one up first", "act", "codes")
        audit.record(AuditAction.FACTOR_CODES, by=user, on=user)
        return _make_codes(user)


def remove(user: User, *, by: User | None) -> bool:
    """Remove the second factor; return whether there was a confirmed one.

    `by` None: the server's operator, for a person who lost it and the recovery codes.
    """
    with audit.change():
        row = _row(user)
        if row is None:
            return False
        was_asked = row.confirmed_at is not None
        row.delete()
        RecoveryCode.objects.filter(user=user).delete()
        if was_asked:
            audit.record(AuditAction.FACTOR_REMOVED, by=by, on=user)
    return was_asked


def codes_left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def matching_step(secret: str, code: str, *, now: datetime, after: int) -> int:
    """Return the half minute whose code this is, one to either side for clock skew; 0 for none, or one used before."""
    present = int(now.timestamp()) // STEP_SECONDS
    typed = "".join(code.split())
    totp = pyotp.TOTP(secret, interval=STEP_SECONDS)
    fitting = (
        step for step in (present, present - 1, present + 1) if strings_equal(totp.at(step * STEP_SECONDS), typed)
    )
    return next((step for step in fitting if step > after), 0)


def pause(failures: int, failed_at: datetime | None, *, now: datetime) -> int:
    """Return the seconds until codes are checked again: the same tries and pause as for passwords."""
    if failed_at is None or not failures or failures % settings.AXES_FAILURE_LIMIT:
        return 0
    left: timedelta = failed_at + settings.AXES_COOLOFF_TIME - now
    return max(0, round(left.total_seconds()))


def _row(user: User) -> SecondFactor | None:
    """Return the row after locking the user: one attempt at a time, or the same code would work twice."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    return SecondFactor.objects.filter(user=user).first()


def _confirmed(user: User) -> SecondFactor | None:
    return SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).first()


def _use_step(row: SecondFactor, code: str, now: datetime) -> bool:
    step = matching_step(_open(row), code, now=now, after=row.last_step)
    row.last_step = step or row.last_step
    return bool(step)


def _use_recovery_code(user: User, code: str, now: datetime) -> bool:
    found = RecoveryCode.objects.filter(user=user, used_at=None, digest=_digest(code))
    if not found.update(used_at=now):
        return False
    audit.record(AuditAction.FACTOR_CODE_USED, by=user, on=user, after={"left": codes_left(user)})
    return True


def _make_codes(user: User) -> list[str]:
    RecoveryCode.objects.filter(user=user).delete()
    texts = ["-".join(_word() for _ in range(_GROUPS)) for _ in range(CODES)]
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(text)) for text in texts)
    return texts


def _word() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_GROUP))


def _digest(code: str) -> str:
    return hashlib.sha256("".join(code.lower().split()).encode()).hexdigest()


def _seal(secret: str) -> str:
    return fernet(_PURPOSE).encrypt(secret.encode()).decode()


def _open(row: SecondFactor) -> str:
    try:
        return fernet(_PURPOSE).decrypt(row.sealed.encode()).decode()
    except InvalidToken as error:
        words = (
            "cannot be read: MUSTER_SECRET_KEY was changed; an operator of the server can remove it (manage.py person)"
        )
        raise Conflict(f"the second factor {words}", "code", None) from error
