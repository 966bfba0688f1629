"""Decide whether a replica's agent has fallen silent: it is stopped, or does not reach the control plane; and whether a GPU is idle. Pure."""

from datetime import datetime, timedelta

from .verdict import ReplicaState

SILENT = timedelta(seconds=60)  # an agent with nothing to send sends an empty batch every 10 s (docs/wire.md)
IDLE = 0.05  # of a core or a GPU: less than that is no use of it
IDLE_AFTER = timedelta(minutes=5)  # before that a GPU without use may be between two steps, or load its data


def silent_for(
    state: str, *, started_at: datetime | None, last_batch_at: datetime | None, now: datetime
) -> timedelta | None:
    """Return how long a running replica's agent has sent nothing; None while that is no cause for concern."""
    last_report_at = last_batch_at or started_at
    if state != ReplicaState.RUNNING or last_report_at is None or now - last_report_at < SILENT:
        return None
    return now - last_report_at
