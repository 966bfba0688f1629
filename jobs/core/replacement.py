"""Replicas that are lost and come back within one attempt of an elastic job. Pure.

A *place* is a role and an index. Each time it is given to a new replica its incarnation grows: names, folders and tokens
carry it, so that nothing late of the one before counts as the new one's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from .verdict import FIRST, ReplicaSeen, ReplicaState, RoleView, Seen

Key = tuple[str, int]  # role and index
MOST = 10  # of one place in one attempt; who fails so often will fail again
LONGEST_PAUSE_SECONDS = 60


@dataclass(frozen=True)
class Place:
    """A place that was given to another replica. `since`: when that was decided; `created_at`: when it was there."""

    incarnation: int
    since: datetime
    created_at: datetime | None = None


Places = Mapping[Key, Place]


@dataclass(frozen=True)
class Wanted:
    """`retire`: what is left of these still occupies their places. `replace`: these are free. `after`: when to look again."""

    retire: tuple[Key, ...] = ()
    replace: tuple[Key, ...] = ()
    after: timedelta | None = None


def judged(
    roles: Iterable[RoleView], seen: Seen, *, created_at: datetime | None, places: Places
) -> tuple[ReplicaSeen, ...]:
    """What was seen of the replicas that have the places now, with absence turned into loss where that is a fact.

    No news is not bad news: only an observed absence is an absence, and only when the observation is newer than
    the creation. And old news is none: of the one before, its end was heard already.
    """
    told = {(one.role, one.index): one for one in seen.replicas if _is_told(one, places)}
    everybody = [(role.name, index) for role in roles for index in range(role.replicas)]
    found = (told.get(key) or _absence(key, seen, created_at, places.get(key)) for key in everybody)
    return tuple(one for one in found if one is not None)


def _is_told(one: ReplicaSeen, places: Places) -> bool:
    place = places.get((one.role, one.index))
    return one.state is not ReplicaState.ABSENT and one.incarnation == (place.incarnation if place else 0)


def _absence(key: Key, seen: Seen, created_at: datetime | None, place: Place | None) -> ReplicaSeen | None:
    created_at = place.created_at if place else created_at
    if seen.as_of is None or created_at is None or seen.as_of <= created_at or not seen.is_fresh:
        return None
    return ReplicaSeen(
        *key, state=ReplicaState.LOST, reason="its process or pod is gone", incarnation=place.incarnation if place else 0,
        is_alive=any((one.role, one.index) == key and one.is_alive for one in seen.replicas),
    )  # fmt: skip


def wanted(roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen], places: Places, now: datetime) -> Wanted:
    """What to do about replicas that an elastic attempt goes on without. A quick end is answered ever more slowly."""
    elastic = {role.name for role in roles if role.least is not None}
    mine = [one for one in replicas if one.role in elastic]
    if any(one.index == FIRST and one.state is ReplicaState.SUCCEEDED for one in mine):
        return Wanted()  # training is over: nobody would be there to meet
    ended = [one for one in mine if one.state in (ReplicaState.FAILED, ReplicaState.LOST) and one.index != FIRST]
    retire = tuple((one.role, one.index) for one in ended if one.is_alive)
    pauses = {
        (one.role, one.index): _pause(places.get((one.role, one.index)), now) for one in ended if not one.is_alive
    }
    free = tuple(key for key, pause in pauses.items() if pause is not None and pause <= timedelta(0))
    later = [pause for pause in pauses.values() if pause is not None and pause > timedelta(0)]
    return Wanted(retire, free, min(later, default=None))


def given_anew(places: Places, keys: Iterable[Key], now: datetime) -> Places:
    """Once it is decided that these places get new replicas."""
    before = {key: places[key].incarnation if key in places else 0 for key in keys}
    return {**places, **{key: Place(incarnation + 1, now) for key, incarnation in before.items()}}


def confirmed(places: Places, now: datetime) -> Places:
    """Once the cluster has said that they are there."""
    return {key: one if one.created_at else replace(one, created_at=now) for key, one in places.items()}


def unconfirmed(places: Places) -> list[Key]:
    return [key for key, one in places.items() if one.created_at is None]


def _pause(place: Place | None, now: datetime) -> timedelta | None:
    """How long to wait still before it may come back; None: it stays away."""
    if place is None:
        return timedelta(0)
    if place.incarnation >= MOST:
        return None
    return place.since + timedelta(seconds=min(LONGEST_PAUSE_SECONDS, 2**place.incarnation)) - now
