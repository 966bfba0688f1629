"""When a finished job is removed by its `ttl_seconds`, as a time and in words."""

from datetime import datetime, timedelta

MOST_SECONDS = 10 * 365 * 86400


def kept_seconds(ttl_seconds: int, *, drain_seconds: float) -> int:
    """Return how long a finished job stays: at least as long as its agents may still deliver what they have."""
    return max(ttl_seconds, int(drain_seconds))


def words(kept: int, *, finished_at: datetime | None) -> str:
    """Return "removed 3 h after its end", and for a job that has ended also when that is, in UTC."""
    told = f"removed {span(kept)} after its end"
    if finished_at is None:
        return told
    at = finished_at + timedelta(seconds=kept)
    day = "" if at.date() == finished_at.date() else f"on {at:%Y-%m-%d} "
    return f"{told}, {day}at {at:%H:%M} UTC"


def note(ttl_seconds: int, *, drain_seconds: float) -> str:
    """Return what a plan says of it."""
    kept = kept_seconds(ttl_seconds, drain_seconds=drain_seconds)
    told = f"{words(kept, finished_at=None)}, with its log, metrics, history and local files (ttl_seconds)"
    return told if kept == ttl_seconds else f"{told}; not earlier, because its agents may deliver until then"


def span(seconds: int) -> str:
    """Return a whole duration in its two largest units that are not zero: "90 s" is "1 min 30 s", 7200 s "2 h"."""
    found = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count:,} {unit}")
    return " ".join(found[:2]) or "0 s"
