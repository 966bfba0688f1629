"""Quotas as a file that can live in git: teams, their ceilings and queues, and how it differs from the server. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from muster.commands.job_file import not_yaml
from muster.errors import JobFileError
from muster.jobs.models import Queue

# Fields of a queue in the file, by the API's names; the first two cannot be changed.
PLACE = ("cluster", "resource")
CHANGEABLE = ("slots", "gpus_per_node", "policy", "is_open", "description")
MAKE, SET, CEILING = "make", "set", "ceiling"


@dataclass(frozen=True)
class Change:
    """One change. `fields` maps names to (before, after); of a queue to make, before is None."""

    kind: str
    team: str
    name: str  # of the queue, or the resource of a ceiling
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        said = ", ".join(
            f"{name} {_shown(after)}"
            if before is None and self.kind == MAKE
            else f"{name} {_shown(before)} -> {_shown(after)}"
            for name, (before, after) in self.fields.items()
        )
        what = {MAKE: f"make queue {self.name}", SET: f"queue {self.name}", CEILING: f"ceiling of {self.name}"}[
            self.kind
        ]
        return f"team {self.team}: {what}: {said}"

    @property
    def after(self) -> dict[str, Any]:
        return {name: after for name, (_, after) in self.fields.items()}

    @property
    def order(self) -> int:
        """Ceilings first, then what gives quota back, so that what takes it fits below them."""
        before, after = self.fields.get("slots", (0, 0))
        return 0 if self.kind == CEILING else 2 if self.kind == MAKE else 1 + int(after > (before or 0))


def written(queues: Sequence[Queue], ceilings: Mapping[str, Mapping[str, int | None]]) -> str:
    """Return the file. `ceilings`: of teams, by resource."""
    teams: dict[str, Any] = {}
    for team in sorted({*ceilings, *(queue.team for queue in queues)}):
        theirs = sorted((one for one in queues if one.team == team), key=lambda one: one.name)
        known = dict(sorted(ceilings.get(team, {}).items()))
        teams[team] = {
            **({"ceilings": known} if known else {}),
            "queues": {one.name: _described(one) for one in theirs},
        }
    return yaml.safe_dump({"teams": teams}, sort_keys=False, allow_unicode=True)


def read(text: str, *, source: str) -> dict[str, Any]:
    """Return the teams of a file. Raises JobFileError that names what is wrong and where."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise not_yaml(error, source) from error
    except (ValueError, RecursionError) as error:
        raise JobFileError(f"{source} cannot be read: {error}") from error
    teams = _mapping(content, "teams", source).get("teams")
    for team, said in _mapping(teams, "teams", source).items():
        known = _mapping(said, f"teams.{team}", source)
        _only(known, ("ceilings", "queues"), f"teams.{team}", source)
        for resource, slots in _mapping(known.get("ceilings") or {}, f"teams.{team}.ceilings", source).items():
            if slots is not None and (not isinstance(slots, int) or isinstance(slots, bool)):
                raise JobFileError(
                    f"{source}: teams.{team}.ceilings.{resource} is {slots!r}; write a whole number, or null for none"
                )
        for name, queue in _mapping(known.get("queues") or {}, f"teams.{team}.queues", source).items():
            path = f"teams.{team}.queues.{name}"
            _only(_mapping(queue, path, source), (*PLACE, *CHANGEABLE), path, source)
    return dict(teams or {})


def changes(
    wanted: Mapping[str, Any], queues: Sequence[Queue], ceilings: Mapping[str, Mapping[str, int | None]], *, source: str
) -> list[Change]:
    """Return what the file changes, in the order in which it can be done. What it does not name stays as it is.

    Raises JobFileError for a change that is not possible.
    """
    known = {one.name: one for one in queues}
    found: list[Change] = []
    for team, said in wanted.items():
        for resource, slots in (said.get("ceilings") or {}).items():
            before = ceilings.get(team, {}).get(resource)
            if resource not in ceilings.get(team, {}) or before != slots:
                found.append(Change(CEILING, str(team), str(resource), {"slots": (before, slots)}))
        for name, queue in (said.get("queues") or {}).items():
            there = known.get(str(name))
            found += _of_queue(str(team), str(name), queue or {}, there, source)
    return sorted(found, key=lambda one: one.order)


def unnamed(wanted: Mapping[str, Any], queues: Sequence[Queue]) -> list[str]:
    """Return the queues of the file's teams that it does not name."""
    named = {(team, name) for team, said in wanted.items() for name in (said.get("queues") or {})}
    return sorted(one.name for one in queues if one.team in wanted and (one.team, one.name) not in named)


def _of_queue(team: str, name: str, queue: Mapping[str, Any], there: Queue | None, source: str) -> Iterator[Change]:
    path = f"{source}: teams.{team}.queues.{name}"
    if there is None:
        if missing := [one for one in ("cluster", "slots") if queue.get(one) is None]:
            raise JobFileError(f"{path} is no queue yet; to make it, give {' and '.join(missing)}")
        yield Change(MAKE, team, name, {one: (None, value) for one, value in queue.items() if value is not None})
        return
    if there.team != team:
        raise JobFileError(f"{path} is a queue of team {there.team}; a queue cannot be given to another team")
    before = _described(there)
    for one in PLACE:
        if queue.get(one) not in (None, before[one]):
            raise JobFileError(
                f"{path}.{one} is {queue[one]!r}, and {before[one]!r} of the queue that is there; make another queue"
            )
    fields = {
        one: (before.get(one), queue[one])
        for one in CHANGEABLE
        if one in queue and queue[one] != before.get(one, _EMPTY.get(one))
    }
    if fields:
        yield Change(SET, team, name, fields)


_EMPTY = {"gpus_per_node": 0, "description": "", "is_open": True, "policy": "strict"}


def _described(queue: Queue) -> dict[str, Any]:
    """Return a queue as the file has it, without what says nothing."""
    every = {
        "cluster": queue.cluster, "resource": queue.resource, "slots": queue.nominal,
        "gpus_per_node": queue.gpus_per_node, "policy": queue.policy, "is_open": queue.is_open,
        "description": queue.description,
    }  # fmt: skip
    return {name: value for name, value in every.items() if name not in ("gpus_per_node", "description") or value}


def _mapping(value: Any, path: str, source: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise JobFileError(f"{source}: {path} must map names to values; `muster quota export` writes such a file")
    return value


def _only(value: Mapping[Any, Any], known: Sequence[str], path: str, source: str) -> None:
    if odd := next((one for one in value if one not in known), None):
        raise JobFileError(f"{source}: {path}.{odd} is not known; known are {', '.join(known)}")


def _shown(value: Any) -> str:
    return "none" if value is None else "yes" if value is True else "no" if value is False else str(value)
