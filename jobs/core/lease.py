"""The lease that makes a visit to a job exclusive, as pure rules; `store.py` applies them under a row lock.

A lease has an owner, an expiry and a token that grows with every taking. The token fences: whoever was paused
past the expiry finds a larger token in the row and must write nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

# Short, so that the jobs of a process that died are free again before anybody minds; a living visit renews it
# (jobs/control/lease_renewal.py), however long one of its calls takes. One that was robbed all the same is fenced by its token.
LEASE_SECONDS = 4


@dataclass(frozen=True)
class Lease:
    token: int = 0
    owner: str = ""
    expires_at: datetime | None = None


def take(lease: Lease, owner: str, now: datetime) -> Lease | None:
    """The lease with a new token in `owner`'s name, or None while somebody else holds it."""
    if lease.expires_at is not None and now < lease.expires_at:
        return None
    return Lease(lease.token + 1, owner, now + timedelta(seconds=LEASE_SECONDS))


def is_mine(lease: Lease, token: int) -> bool:
    """Whether a write under `token` may still happen. Expiry alone does not end it: only another taking does."""
    return lease.token == token


def release(lease: Lease) -> Lease:
    """Free at once; the token stays, so that it can only grow."""
    return Lease(lease.token)
