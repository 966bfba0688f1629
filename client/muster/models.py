"""What the server answers, as frozen values.

Fields that a newer server adds stay readable in `raw` and are otherwise ignored; fields that it leaves out, or answers
with null, take their default. So an old client reads a new server, and the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Callable, TypeVar

from muster.errors import UnexpectedAnswer

Json = Mapping[str, Any]
M = TypeVar("M", bound="Model")

LAUNCHER = -1  # the "rank" of what the launcher itself printed (docs/wire.md)


def as_time(text: str) -> datetime:
    """An aware datetime from ISO 8601; Python before 3.11 does not read the Z."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _read(parse: Callable[[Any], Any], *, default: Any = None) -> Any:
    return field(default=default, metadata={"parse": parse})


def _time() -> Any:
    return _read(as_time)


def _mapping() -> Any:
    # Out of the hash: a dict has none, and a model should be usable as a key.
    return field(default_factory=dict, hash=False)


def _raw() -> Any:
    return field(default_factory=dict, repr=False, compare=False)


class Model:
    @classmethod
    def parse(cls: type[M], answer: Any) -> M:
        """Raises UnexpectedAnswer when a field that names the thing is missing, or a value can not be read."""
        try:
            return cls(**cls._fields(answer))
        except (TypeError, ValueError, AttributeError) as error:
            message = f"the server sent a {cls.__name__} this client can not read ({error}): update muster-client"
            raise UnexpectedAnswer(message) from error

    @classmethod
    def _fields(cls, answer: Json) -> dict[str, Any]:
        known: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)  # type: ignore[arg-type]
        values = {f.name: _value(f, given=answer[f.name]) for f in known if answer.get(f.name) is not None}
        return {**values, "raw": answer} if any(f.name == "raw" for f in known) else values


def _value(known: dataclasses.Field[Any], *, given: Any) -> Any:
    parse = known.metadata.get("parse")
    return parse(given) if parse else given


@dataclass(frozen=True)
class RankCounts(Model):
    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Failure(Model):
    rank: int | None = None
    replica: str = ""
    exit_code: int | None = None
    signal: int | None = None
    at: datetime | None = _time()
    explanation: str = ""
    last_lines: tuple[str, ...] = _read(tuple, default=())


@dataclass(frozen=True)
class Job(Model):
    id: int
    phase: str
    name: str = ""
    team: str = ""
    queue: str = ""
    user: str = ""
    framework: str = ""
    reason: str = ""
    message: str = ""
    priority: int = 0
    attempt: int = 0
    failures: int = 0
    max_retries: int = 0
    nodes: int = 1
    nproc_per_node: int = 1
    command: tuple[str, ...] = _read(tuple, default=())
    env: Mapping[str, str] = _mapping()
    workspace: int | None = None
    created_at: datetime | None = _time()
    admitted_at: datetime | None = _time()
    running_at: datetime | None = _time()
    finished_at: datetime | None = _time()
    phase_since: datetime | None = _time()
    is_finished: bool = False
    ranks: RankCounts = _read(RankCounts.parse, default=RankCounts())
    first_failure: Failure | None = _read(Failure.parse)
    url: str = ""
    raw: Json = _raw()


@dataclass(frozen=True)
class Rank(Model):
    rank: int
    attempt: int = 0
    local_rank: int | None = None
    replica: str = ""
    node: str = ""
    state: str = ""
    step: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cpu: float | None = None  # cores
    rss_bytes: int | None = None
    gpu: float | None = None  # 0 to 1
    gpu_mem_bytes: int | None = None
    last_line_at: datetime | None = _time()
    started_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    raw: Json = _raw()


@dataclass(frozen=True)
class LogLine(Model):
    at_ms: int
    text: str = ""
    rank: int = LAUNCHER
    attempt: int = 0
    is_gap: bool = False  # not printed by the job: says how many lines are missing here

    @property
    def is_launcher(self) -> bool:
        return self.rank < 0

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_ms / 1000, tz=timezone.utc)


@dataclass(frozen=True)
class LogPage(Model):
    lines: tuple[LogLine, ...] = _read(lambda lines: tuple(LogLine.parse(line) for line in lines), default=())
    cursor: str | None = None
    is_complete: bool = False


@dataclass(frozen=True)
class Event(Model):
    at: datetime = field(metadata={"parse": as_time})
    kind: str = ""
    message: str = ""
    phase: str = ""
    user: str | None = None
    raw: Json = _raw()


@dataclass(frozen=True)
class Queue(Model):
    name: str
    team: str = ""
    cluster: str = ""
    resource: str = ""
    nominal: int = 0
    used: int = 0
    gpus_per_node: int = 0
    is_open: bool = True
    raw: Json = _raw()


@dataclass(frozen=True)
class Workspace(Model):
    id: int
    digest: str = ""
    size_bytes: int = 0


@dataclass(frozen=True)
class Login(Model):
    token: str = field(repr=False)
    user: str = ""


@dataclass(frozen=True)
class Membership(Model):
    name: str
    role: str = ""


@dataclass(frozen=True)
class TokenName(Model):
    name: str = ""
    prefix: str = ""


@dataclass(frozen=True)
class Me(Model):
    user: str
    is_admin: bool = False
    teams: tuple[Membership, ...] = _read(lambda teams: tuple(Membership.parse(team) for team in teams), default=())
    token: TokenName | None = _read(TokenName.parse)
    version: str = ""
    raw: Json = _raw()


@dataclass(frozen=True)
class Point:
    at_ms: int
    step: int | None
    value: float


@dataclass(frozen=True)
class Series(Model):
    name: str
    rank: int | None = None
    points: tuple[Point, ...] = _read(lambda points: tuple(Point(*point[:3]) for point in points), default=())
