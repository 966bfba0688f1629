"""The lease that makes a visit to a job exclusive, as pure rules; `store.py` applies them under a row lock.

A lease has an owner, an expiry and a token that grows each time it is taken. The token fences: a holder paused past the
expiry finds a larger token in the row and must write nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

# Short, so that the jobs of a process that died are soon free again; a running visit renews it
# (jobs/control/lease_renewal.py), however long one of its calls takes. A visit that loses its lease all the same is
# fenced by its token.
LEASE_SECONDS = 4


@dataclass(frozen=True)
class Lease:
    token: int = 0
    owner: str = ""
    expires_at: datetime | None = None


def take(lease: Lease, owner: str, now: datetime) -> Lease | None:
    """Return the lease with a new token and `owner`, or None while another owner holds it."""
    if lease.expires_at is not None and now < lease.expires_at:
        return None
    return Lease(lease.token + 1, owner, now + timedelta(seconds=LEASE_SECONDS))


def is_mine(lease: Lease, token: int) -> bool:
    """Whether a write under `token` is still allowed. Expiry alone does not forbid it: only a newer token does."""
    return lease.token == token


def release(lease: Lease) -> Lease:
    """Return the lease without owner and expiry; the token stays, so that it can only grow."""
    return Lease(lease.token)
