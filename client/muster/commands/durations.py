"""Durations as people write and read them: 90s, 2h, 7d, 1h30m. Pure."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")


def seconds_of(text: str) -> int:
    """Return a duration in seconds; a number without a unit is seconds. Raises ValueError with what to write."""
    clean = text.strip().replace(" ", "").lower()
    if re.fullmatch(r"[0-9]{1,18}", clean):
        return int(clean)
    found = _WRITTEN.fullmatch(clean)
    if not clean or found is None:
        raise ValueError(f"{text!r} is no duration; write it as 90s, 15m, 2h, 7d or 1h30m")
    return sum(int(count) * size for count, size in zip(found.groups(default="0"), _UNITS.values()))


def span(seconds: float) -> str:
    """Return a duration as it would be written, in its two largest units that are not zero: 2h, 1h30m."""
    left, found = int(seconds), []
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count:
            found.append(f"{count}{unit}")
    return "".join(found[:2]) or "0s"
