"""An agent's token: signed, without a row of its own. It names one replica of one attempt and nothing else."""

from django.core import signing
from django.utils.crypto import salted_hmac

from jobs.core.agent_identity import AgentIdentity

_SALT = "muster.agent"


def issue(identity: AgentIdentity) -> str:
    words = [identity.job, identity.run, identity.attempt, identity.role, identity.index]
    if identity.incarnation:
        words.append(identity.incarnation)
    return signing.dumps(words, salt=_SALT, compress=False)


def attempt_key(run: str, attempt: int) -> str:
    """Return 64 hexadecimal digits that only the replicas of one attempt are given, the same for each launch of it."""
    return salted_hmac("muster.attempt", f"{run} {attempt}", algorithm="sha256").hexdigest()


def read(text: str) -> AgentIdentity | None:
    """Return the identity in a token; None if the token is not one of ours."""
    try:
        job, run, attempt, role, index, *more = signing.loads(text, salt=_SALT)
        return AgentIdentity(job, run, attempt, role, index, *more)
    except (signing.BadSignature, ValueError, TypeError):
        return None


# of a header: str.strip removes more, and each extra character would make another header of the same token
BLANKS = " \t"


def bearer(header: str) -> AgentIdentity | None:
    """Return the identity in an Authorization header; None if it has none."""
    scheme, _, text = header.strip(BLANKS).partition(" ")
    return read(text.strip(BLANKS)) if scheme.lower() == "bearer" else None
