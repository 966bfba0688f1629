"""Replicas that are lost and replaced within one attempt of an elastic job. Pure.

A *place* is a role and an index. Each time it is given to a new replica its incarnation grows. Names, folders and
tokens include it, so that nothing late from the previous replica counts as the new one's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from .verdict import ReplicaSeen, ReplicaState, RoleView, Seen

Key = tuple[str, int]  # role and index
MOST = 10  # per place and attempt; a place that fails this often will fail again
LONGEST_PAUSE_SECONDS = 60
GONE = "its process or pod is gone"  # the reason where nothing else is known


@dataclass(frozen=True)
class ReplicaPlace:
    """A place given to a new replica. `since`: when that was decided; `applied_at`: when its creation was confirmed."""

    incarnation: int
    since: datetime
    applied_at: datetime | None = None


ReplicaPlaces = Mapping[Key, ReplicaPlace]


@dataclass(frozen=True)
class Replacements:
    """What to do next.

    `end_replicas`: places still occupied by remains. `replace`: free places. `after`: when to look again.
    """

    end_replicas: tuple[Key, ...] = ()
    replace: tuple[Key, ...] = ()
    after: timedelta | None = None


def with_losses(
    roles: Iterable[RoleView], seen: Seen, *, applied_at: datetime | None, places: ReplicaPlaces
) -> tuple[ReplicaSeen, ...]:
    """Return the state of the replicas that now hold the places, with absence turned into loss where it is certain.

    Missing information is not a loss: only an observed absence counts, and only if the observation is newer than the
    creation. Reports about a previous replica of a place are ignored: its end has been handled.
    """
    reported = {(one.role, one.index): one for one in seen.replicas if _is_reported(one, places)}
    everybody = [(role.name, index) for role in roles for index in range(role.replicas)]
    found = (reported.get(key) or _absence(key, seen, applied_at, place=places.get(key)) for key in everybody)
    return tuple(one for one in found if one is not None)


def _is_reported(one: ReplicaSeen, places: ReplicaPlaces) -> bool:
    place = places.get((one.role, one.index))
    return one.state is not ReplicaState.ABSENT and one.incarnation == (place.incarnation if place else 0)


def _absence(key: Key, seen: Seen, applied_at: datetime | None, *, place: ReplicaPlace | None) -> ReplicaSeen | None:
    applied_at = place.applied_at if place else applied_at
    if seen.as_of is None or applied_at is None or seen.as_of <= applied_at or not seen.is_fresh:
        return None
    return ReplicaSeen(
        *key, state=ReplicaState.LOST, reason=GONE, incarnation=place.incarnation if place else 0,
        is_alive=any((one.role, one.index) == key and one.is_alive for one in seen.replicas),
    )  # fmt: skip


def plan_replacements(
    roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen], places: ReplicaPlaces, *, now: datetime
) -> Replacements:
    """Return what to do about replicas that an elastic attempt has lost.

    Repeated losses of a place are replaced ever more slowly.
    """
    anchors = {role.name: role.anchor for role in roles if role.least is not None}
    mine = [one for one in replicas if one.role in anchors]
    over = {one.role for one in mine if one.index == anchors[one.role] and one.state is ReplicaState.SUCCEEDED}
    ended = [
        one
        for one in mine
        if one.state in (ReplicaState.FAILED, ReplicaState.LOST)
        and one.index != anchors[one.role]
        and one.role not in over  # training is over: a new replica would find nothing to join
    ]
    end_replicas = tuple((one.role, one.index) for one in ended if one.is_alive)
    pauses = {
        (one.role, one.index): _pause(places.get((one.role, one.index)), now) for one in ended if not one.is_alive
    }
    free = tuple(key for key, pause in pauses.items() if pause is not None and pause <= timedelta(0))
    later = [pause for pause in pauses.values() if pause is not None and pause > timedelta(0)]
    return Replacements(end_replicas, free, min(later, default=None))


def replaced(places: ReplicaPlaces, keys: Iterable[Key], now: datetime) -> ReplicaPlaces:
    """Return the places once it is decided that these get new replicas."""
    before = {key: places[key].incarnation if key in places else 0 for key in keys}
    return {**places, **{key: ReplicaPlace(incarnation + 1, now) for key, incarnation in before.items()}}


def confirmed(places: ReplicaPlaces, now: datetime) -> ReplicaPlaces:
    """Return the places once the cluster has confirmed their new replicas."""
    return {key: one if one.applied_at else replace(one, applied_at=now) for key, one in places.items()}


def unconfirmed(places: ReplicaPlaces) -> list[Key]:
    return [key for key, one in places.items() if one.applied_at is None]


def _pause(place: ReplicaPlace | None, now: datetime) -> timedelta | None:
    """Return the remaining time before a place may be given to a new replica; None: never."""
    if place is None:
        return timedelta(0)
    if place.incarnation >= MOST:
        return None
    return place.since + timedelta(seconds=min(LONGEST_PAUSE_SECONDS, 2**place.incarnation)) - now
