"""An agent's identity: signed, without a row of its own. It names one replica of one attempt and nothing else."""

from dataclasses import dataclass

from django.core import signing

_SALT = "muster.agent"


@dataclass(frozen=True)
class AgentIdentity:
    job: int
    run: str
    attempt: int
    role: str
    index: int


def issue(identity: AgentIdentity) -> str:
    return signing.dumps(
        [identity.job, identity.run, identity.attempt, identity.role, identity.index], salt=_SALT, compress=False
    )


def read(text: str) -> AgentIdentity | None:
    """Who this token names; None when it is not one of ours."""
    try:
        job, run, attempt, role, index = signing.loads(text, salt=_SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return AgentIdentity(job, run, attempt, role, index)


def bearer(header: str) -> AgentIdentity | None:
    """Who an Authorization header names."""
    scheme, _, text = header.partition(" ")
    return read(text.strip()) if scheme.lower() == "bearer" else None
