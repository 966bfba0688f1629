"""Quotas as a file that can live in git: teams with what they have, and how it differs from the server. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from muster.commands.job_file import not_yaml
from muster.errors import JobFileError
from muster.jobs.models import LIMITS, Queue
from muster.teams.models_quotas import Cohort, Flavor, Quota

# Fields of a queue in the file, by the API's names; the first two cannot be changed.
PLACE = ("cluster", "resource")
CHANGEABLE = (
    "slots", "gpus_per_node", "policy", "flavor", "borrowing_limit", "preempts", *LIMITS, "is_open", "drains",
    "description",
)  # fmt: skip
OF_FLAVOR = ("cluster", "resource", "gpus_per_node", "node_selector")
OF_COHORT = ("above",)
OF_QUOTA = ("nominal", "borrowing_limit", "lending_limit", "weight", "cohort")
FLAVOR, COHORT, CEILING, QUOTA, SET, MAKE = "flavor", "cohort", "ceiling", "quota", "set", "make"
_WORDS = {
    FLAVOR: "make flavor {}", COHORT: "cohort {}", CEILING: "ceiling of {}", QUOTA: "quota of {}", SET: "queue {}",
    MAKE: "make queue {}",
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """What the server has. `ceilings` are by team and resource, `quotas` by team and flavor."""

    queues: Sequence[Queue] = ()
    ceilings: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    flavors: Sequence[Flavor] = ()
    cohorts: Sequence[Cohort] = ()
    quotas: Mapping[str, Mapping[str, Quota]] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One change. `fields` maps names to (before, after); of what is to be made, before is None."""

    kind: str
    team: str  # empty for flavors and cohorts
    name: str  # of the queue, the resource of a ceiling, the flavor of a quota
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    is_new: bool = False

    @property
    def words(self) -> str:
        said = ", ".join(
            f"{name} {_shown(after)}" if self.is_new else f"{name} {_shown(before)} -> {_shown(after)}"
            for name, (before, after) in self.fields.items()
        )
        what = f"{_WORDS[self.kind].format(self.name)}{f': {said}' if said else ''}"
        return f"team {self.team}: {what}" if self.team else what

    @property
    def after(self) -> dict[str, Any]:
        return {name: after for name, (_, after) in self.fields.items()}

    @property
    def order(self) -> int:
        """First kinds, ceilings and larger quotas, then queues that give back, those that take, then smaller quotas."""
        kinds = {FLAVOR: 0, COHORT: 1, CEILING: 2, QUOTA: 3, SET: 4, MAKE: 6}
        before, after = self.fields.get("nominal" if self.kind == QUOTA else "slots", (0, 0))
        is_more = after > (before or 0) or bool(self.after.get("flavor"))
        if self.kind == QUOTA and not is_more and "nominal" in self.fields:
            return 7
        return 5 if self.kind == SET and is_more else kinds[self.kind]


def written(known: Known) -> str:
    """Return the file."""
    teams: dict[str, Any] = {}
    for team in sorted({*known.ceilings, *known.quotas, *(queue.team for queue in known.queues)}):
        theirs = sorted((one for one in known.queues if one.team == team), key=lambda one: one.name)
        ceilings = dict(sorted(known.ceilings.get(team, {}).items()))
        quotas = {
            name: {field: getattr(one, field) for field in OF_QUOTA}
            for name, one in sorted(known.quotas.get(team, {}).items())
        }
        teams[team] = {
            **({"ceilings": ceilings} if ceilings else {}),
            **({"quotas": quotas} if quotas else {}),
            "queues": {one.name: _described(one) for one in theirs},
        }
    every: dict[str, Any] = {}
    if known.flavors:
        every["flavors"] = {one.name: _of(one, OF_FLAVOR) for one in known.flavors}
    if known.cohorts:
        every["cohorts"] = {one.name: _of(one, OF_COHORT) for one in known.cohorts}
    return yaml.safe_dump({**every, "teams": teams}, sort_keys=False, allow_unicode=True)


def read(text: str, *, source: str) -> dict[str, Any]:
    """Return a file's flavors, cohorts and teams. Raises JobFileError that names what is wrong and where."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise not_yaml(error, source) from error
    except (ValueError, RecursionError) as error:
        raise JobFileError(f"{source} cannot be read: {error}") from error
    if not isinstance(content, Mapping) or not content:
        raise JobFileError(f"{source}: teams must map names to values; `muster quota export` writes such a file")
    _only(content, ("flavors", "cohorts", "teams"), "", source)
    for kind, fields in (("flavors", OF_FLAVOR), ("cohorts", OF_COHORT)):
        for name, one in _mapping(content.get(kind) or {}, kind, source).items():
            _only(_mapping(one or {}, f"{kind}.{name}", source), fields, f"{kind}.{name}.", source)
    for team, said in _mapping(content.get("teams") or {}, "teams", source).items():
        path = f"teams.{team}"
        known = _mapping(said, path, source)
        _only(known, ("ceilings", "quotas", "queues"), f"{path}.", source)
        for resource, slots in _mapping(known.get("ceilings") or {}, f"{path}.ceilings", source).items():
            _whole(slots, f"{path}.ceilings.{resource}", source)
        for flavor, quota in _mapping(known.get("quotas") or {}, f"{path}.quotas", source).items():
            here = f"{path}.quotas.{flavor}"
            _only(_mapping(quota, here, source), OF_QUOTA, f"{here}.", source)
            for name in OF_QUOTA[:3]:
                _whole(quota.get(name), f"{here}.{name}", source)
        for name, queue in _mapping(known.get("queues") or {}, f"{path}.queues", source).items():
            here = f"{path}.queues.{name}"
            _only(_mapping(queue, here, source), (*PLACE, *CHANGEABLE), f"{here}.", source)
    return dict(content)


def changes(wanted: Mapping[str, Any], known: Known, *, source: str) -> list[Change]:
    """Return what the file changes, in the order in which it can be done. What it does not name stays as it is.

    Raises JobFileError for a change that is not possible.
    """
    found = [*_of_flavors(wanted.get("flavors") or {}, known, source), *_of_cohorts(wanted.get("cohorts") or {}, known)]
    queues = {one.name: one for one in known.queues}
    for team, said in (wanted.get("teams") or {}).items():
        ceilings = known.ceilings.get(team, {})
        for resource, slots in (said.get("ceilings") or {}).items():
            before = ceilings.get(resource)
            if resource not in ceilings or before != slots:
                found.append(Change(CEILING, str(team), str(resource), {"slots": (before, slots)}))
        for flavor, quota in (said.get("quotas") or {}).items():
            there = known.quotas.get(team, {}).get(str(flavor))
            found += _of_quota(str(team), str(flavor), quota, there, source)
        for name, queue in (said.get("queues") or {}).items():
            found += _of_queue(str(team), str(name), queue or {}, queues.get(str(name)), source)
    return sorted(found, key=lambda one: one.order)


def unnamed(wanted: Mapping[str, Any], queues: Sequence[Queue]) -> list[str]:
    """Return the queues of the file's teams that it does not name."""
    teams = wanted.get("teams") or {}
    named = {(team, name) for team, said in teams.items() for name in (said.get("queues") or {})}
    return sorted(one.name for one in queues if one.team in teams and (one.team, one.name) not in named)


def _of_flavors(wanted: Mapping[str, Any], known: Known, source: str) -> Iterator[Change]:
    there = {one.name: one for one in known.flavors}
    for name, said in wanted.items():
        path = f"{source}: flavors.{name}"
        given = {one: value for one, value in (said or {}).items() if value is not None}
        if name not in there:
            if "cluster" not in given:
                raise JobFileError(f"{path} is no flavor yet; to make it, give cluster")
            yield Change(FLAVOR, "", str(name), {one: (None, value) for one, value in given.items()}, is_new=True)
            continue
        before = _of(there[name], OF_FLAVOR)
        if odd := next((one for one, value in given.items() if before.get(one, _EMPTY.get(one)) != value), None):
            raise JobFileError(
                f"{path}.{odd} is {given[odd]!r}, and {before.get(odd)!r} of the flavor that is there; a flavor cannot "
                "be changed, so choose another name"
            )


def _of_cohorts(wanted: Mapping[str, Any], known: Known) -> list[Change]:
    """Return the cohorts to make or to move, each after the one above it."""
    there = {one.name: one.above for one in known.cohorts}
    above = {str(name): (said or {}).get("above") for name, said in wanted.items()}
    found: list[Change] = []
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done or name not in above:
            return
        done.add(name)
        if (parent := above[name]) is not None:
            add(str(parent))
        if name not in there:
            found.append(Change(COHORT, "", name, {"above": (None, parent)} if parent else {}, is_new=True))
        elif there[name] != parent:
            found.append(Change(COHORT, "", name, {"above": (there[name], parent)}))

    for name in above:
        add(name)
    return found


def _of_quota(team: str, flavor: str, said: Mapping[str, Any], there: Quota | None, source: str) -> Iterator[Change]:
    if there is None:
        if said.get("nominal") is None:
            raise JobFileError(f"{source}: teams.{team}.quotas.{flavor} is no quota yet; to make it, give nominal")
        fields = {name: (None, said[name]) for name in OF_QUOTA if said.get(name) is not None}
        yield Change(QUOTA, team, flavor, fields, is_new=True)
        return
    before = {name: getattr(there, name) for name in OF_QUOTA}
    fields = {name: (before[name], said[name]) for name in OF_QUOTA if name in said and said[name] != before[name]}
    if fields:
        yield Change(QUOTA, team, flavor, fields)


def _of_queue(team: str, name: str, queue: Mapping[str, Any], there: Queue | None, source: str) -> Iterator[Change]:
    path = f"{source}: teams.{team}.queues.{name}"
    if there is None:
        if missing := [one for one in ("cluster", "slots") if queue.get(one) is None]:
            raise JobFileError(f"{path} is no queue yet; to make it, give {' and '.join(missing)}")
        given = {one: (None, value) for one, value in queue.items() if value is not None or one == "borrowing_limit"}
        yield Change(MAKE, team, name, given, is_new=True)
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
        one: (before.get(one, _EMPTY.get(one)), queue[one])
        for one in CHANGEABLE
        if one in queue and queue[one] != before.get(one, _EMPTY.get(one))
    }
    if fields:
        yield Change(SET, team, name, fields)


# What the file leaves out where it says nothing.
_EMPTY = {
    "gpus_per_node": 0, "description": "", "is_open": True, "policy": "strict", "flavor": None, "borrowing_limit": 0,
    "preempts": False, "drains": False, "node_selector": {},
}  # fmt: skip
_LEFT_OUT = ("gpus_per_node", "description", "flavor", "borrowing_limit", "preempts", "drains", *LIMITS)


def _described(queue: Queue) -> dict[str, Any]:
    """Return a queue as the file has it, without what says nothing."""
    every = {"cluster": queue.cluster, "resource": queue.resource, "slots": queue.nominal}
    every |= {name: getattr(queue, name) for name in CHANGEABLE[1:]}
    kept = ("flavor", "borrowing_limit", "preempts") if "flavor" in queue.raw else ()
    kept = (*kept, "drains", *LIMITS) if "drains" in queue.raw else kept
    left_out = {name for name in _LEFT_OUT if name not in kept and every[name] == _EMPTY.get(name)}
    return {name: value for name, value in every.items() if name not in left_out}


def _of(one: Flavor | Cohort | Quota, names: Sequence[str]) -> dict[str, Any]:
    """Return these fields as the file has them, without what says nothing."""
    nothing = {"gpus_per_node": 0, "weight": 1.0, "node_selector": {}}
    fields = {name: getattr(one, name) for name in names}
    return {name: value for name, value in fields.items() if value is not None and value != nothing.get(name)}


def _whole(value: Any, path: str, source: str) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise JobFileError(f"{source}: {path} is {value!r}; write a whole number, or null for none")


def _mapping(value: Any, path: str, source: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise JobFileError(f"{source}: {path} must map names to values; `muster quota export` writes such a file")
    return value


def _only(value: Mapping[Any, Any], known: Sequence[str], path: str, source: str) -> None:
    if odd := next((one for one in value if one not in known), None):
        raise JobFileError(f"{source}: {path}{odd} is not known; known are {', '.join(known)}")


def _shown(value: Any) -> str:
    return "none" if value in (None, "") else "yes" if value is True else "no" if value is False else str(value)
