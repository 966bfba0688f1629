"""Which lane has passed on this machine, with which content: files in the user's cache folder, one for each key.

A stamp is written by a whole run of a lane in a checkout without changes. A lane whose key has a stamp is not run again.
What CI took from a stamp is owed to the next full run, which runs it in any case.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from embedded.files import read_json, write_json
from tests.support import keys

LARGER = {"quick": ("quick", "ci", "all"), "ci": ("ci", "all"), "all": ("all",)}  # a run of these includes it
KEPT_DAYS = 60


@dataclass(frozen=True)
class Stamp:
    lane: str
    size: str
    key: str
    commit: str
    at: str  # UTC, ISO 8601
    words: str  # pytest's summary

    def __str__(self) -> str:
        return f"passed at {self.commit[:12]} on {self.at}, size {self.size}: {self.words}"


def folder() -> Path:
    return keys.cache_folder() / "stamps"


def find(lane: str, *, size: str, key: str) -> Stamp | None:
    """Return the stamp of a run that included this one; None if there is none, or the full run is owed this lane."""
    if size == "all" and _owed(lane).exists():
        return None
    found = (_read(_file(lane, larger, key)) for larger in LARGER[size])
    return next((one for one in found if one), None)


def write(lane: str, *, size: str, key: str, words: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    stamp = Stamp(lane, size, key, keys.head(), now, words)
    folder().mkdir(parents=True, exist_ok=True)
    write_json(_file(lane, size, key), value=asdict(stamp))
    if size == "all":
        _owed(lane).unlink(missing_ok=True)


def passed_in_full() -> list[str]:
    """Return the commits at which lanes passed in the size all on this machine, the newest first."""
    found = [_read(path) for path in folder().glob("*-all-*.json")]
    return [one.commit for one in sorted((one for one in found if one), key=lambda one: one.at, reverse=True)]


def owe(lane: str) -> None:
    """The next full run runs this lane whatever its key says."""
    folder().mkdir(parents=True, exist_ok=True)
    _owed(lane).touch()


def forget_old(now: float) -> None:
    for path in folder().glob("*.json") if folder().is_dir() else ():
        if now - path.stat().st_mtime > KEPT_DAYS * 86400:
            path.unlink(missing_ok=True)


def _read(path: Path) -> Stamp | None:
    try:
        return Stamp(**(read_json(path) or {}))
    except TypeError:
        return None


def _file(lane: str, size: str, key: str) -> Path:
    return folder() / f"{_word(lane)}-{size}-{key}.json"


def _owed(lane: str) -> Path:
    return folder() / f"{_word(lane)}.owed"


def _word(lane: str) -> str:
    return lane.replace("/", ".")
