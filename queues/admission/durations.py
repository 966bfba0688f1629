"""How long a job probably holds its quota, from how long others like it did. Pure; times in seconds."""

from collections.abc import Sequence

from .snapshot import Range

FEWEST = 5  # jobs from which anything is concluded
LOW, HIGH = 0.1, 0.9  # four in five lie between


def expected(held: Sequence[float], *, elapsed: float = 0.0) -> Range | None:
    """Return how much longer a job lasts that has lasted `elapsed` already; None where too few lasted that long.

    Jobs that ended earlier say nothing about one that did not.
    """
    left = sorted(one - elapsed for one in held if one > elapsed)
    if len(left) < FEWEST:
        return None
    return Range(_quantile(left, LOW), _quantile(left, HIGH))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share lies, between two samples in proportion."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
