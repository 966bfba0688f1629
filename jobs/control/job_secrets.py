"""Encrypt a job's own secrets at rest, and find those of its team that it names; only a launch decrypts them.

See common/encryption.py for the effect of a new key.
"""

import json
from collections.abc import Mapping

from common.encryption import InvalidToken, fernet
from common.errors import Refused
from credentials import services as credentials
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.volumes import mounts
from jobs.models import Attempt, Job

_PURPOSE = b"muster.job.secrets"


def seal(values: Mapping[str, str]) -> str:
    """Encrypt `values`; returns "" for no values."""
    return fernet(_PURPOSE).encrypt(json.dumps(dict(values)).encode()).decode() if values else ""


def unseal(text: str) -> dict[str, str]:
    """Decrypt what `seal` returned. Raises Refused when the encryption key has changed since."""
    if not text:
        return {}
    try:
        found: dict[str, str] = json.loads(fernet(_PURPOSE).decrypt(text.encode()))
    except InvalidToken as error:
        raise Refused(
            "the job's secrets cannot be read: MUSTER_SECRET_KEY was changed since it was submitted; submit it again"
        ) from error
    return found


def of_team(job: Job, attempt: int) -> credentials.Values:
    """Return the values that an attempt has of its team's secrets. Raises Refused for one that is gone."""
    names = mounts(job.job_spec.team_secrets)
    if not names:
        return credentials.Values()
    row = Attempt.objects.filter(job=job, number=attempt).only("secrets").first()
    versions = row.secrets if row and row.secrets is not None else credentials.newest(names, team=job.team)
    if gone := sorted(set(names) - set(versions)):
        raise Refused(f"secret {gone[0]} of team {job.team.name} does not exist; make it, or submit without it")
    return credentials.read(versions, team=job.team)


def texts(job: Job) -> list[str]:
    """Return every value that no message about the job may hold."""
    given = of_team(job, job.attempt)
    files = [text for one in given.files.values() for text in one.values()]
    logins = [one["password"] for one in given.logins.values()]
    return [*unseal(job.sealed_secrets).values(), *given.env.values(), *files, *logins]


def in_use() -> set[tuple[int, str, int]]:
    """Return the versions of teams' secrets that attempts on clusters have: (team, name, number)."""
    rows = Attempt.objects.filter(ended_at=None, secrets__isnull=False, job__phase__in=ON_CLUSTER)
    found = rows.values_list("job__team_id", "secrets")
    return {(team, name, number) for team, secrets in found for name, number in (secrets or {}).items()}
