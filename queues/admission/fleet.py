"""The nodes of a cluster: what is free on each, and whether all replicas of a job find room at once. Pure.

Only GPUs are counted. What else decides where a pod may run (labels, taints, memory) is left to the scheduler of Kubernetes. So
a job that does not fit here surely does not fit, and one that fits here may still find no place: that is `FleetState.refused`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Gang = tuple[tuple[int, int], ...]  # GPUs of a replica and how many replicas take so many, the largest first


@dataclass(frozen=True)
class FleetState:
    """What is known of a cluster's nodes. Nodes that take no pods now are left out.

    `gpus`: what each node offers beside what pods of others hold; `placed`: what each job holds of them, by its number and the
    node; `unplaced`: replicas that will come, of jobs that hold quota already. `refused`: shapes of pods for which the
    scheduler of Kubernetes finds no node now, each with the least GPUs of such a pod and its job. `whole`: the GPUs of each
    node, whoever holds them, also of nodes that will soon be back; None: as in `gpus`.
    """

    gpus: Mapping[str, int]
    placed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    unplaced: tuple[tuple[int, Gang], ...] = ()
    refused: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    whole: Mapping[str, int] | None = None


def gang(parts: Iterable[tuple[int, int]]) -> Gang:
    """Return the gang of roles: GPUs of a replica, and how many replicas. Those without GPUs need no room."""
    found = Counter[int]()
    for gpus, replicas in parts:
        found[gpus] += replicas
    return tuple(sorted(((gpus, count) for gpus, count in found.items() if gpus and count), reverse=True))


class Fleet:
    """A working copy of the nodes: `take` and `give_back` change it."""

    def __init__(self, state: FleetState) -> None:
        self._whole = Counter((state.gpus if state.whole is None else state.whole).values())
        self._free = dict(state.gpus)
        self._places: dict[int, dict[str, int]] = {}
        for job, places in sorted(state.placed.items()):
            self._places[job] = dict(places)
            for node, gpus in places.items():
                if node in self._free:
                    self._free[node] -= gpus
        self._by_free: dict[int, dict[str, None]] = defaultdict(dict)
        for node, gpus in sorted(self._free.items()):
            self._by_free[gpus][node] = None
        for job, parts in state.unplaced:
            self.take(job, parts)

    @property
    def free(self) -> int:
        return sum(max(0, gpus) * len(nodes) for gpus, nodes in self._by_free.items())

    @property
    def largest(self) -> int:
        """Return the most that is free on one node."""
        return max((gpus for gpus, nodes in self._by_free.items() if nodes), default=0)

    @property
    def largest_node(self) -> int:
        return max(self._whole, default=0)

    def fits(self, parts: Gang) -> bool:
        """Whether there may be room for all replicas at once. Of replicas of one size that is exact."""
        return _lacking(parts, self._counts()) is None

    def harms(self, parts: Gang, kept: Iterable[Gang]) -> bool:
        """Whether replicas, wherever they are placed, may take the last room of gangs that this copy has given theirs.

        A replica on the worst node takes the place of as many of theirs as it takes GPUs of.
        """
        counts = self._counts()
        for gpus in {gpus for gang in kept for gpus, _ in gang}:
            spare = sum(nodes * (free // gpus) for free, nodes in counts.items() if free >= gpus)
            if sum(count * -(-size // gpus) for size, count in parts) > spare:
                return True
        return False

    def could_fit(self, parts: Gang) -> bool:
        """The same if nothing ran."""
        return _lacking(parts, self._whole) is None

    def lacking(self, parts: Gang, *, is_empty: bool = False) -> tuple[int, int, int]:
        """Return of a gang that does not fit: GPUs of a replica, how many have so many, and for how many there is room."""
        found = _lacking(parts, self._whole if is_empty else self._counts())
        assert found is not None, "it fits"
        return found

    def nearest(self, parts: Gang) -> tuple[int, int] | None:
        """Return as how many replicas, of how many GPUs each, the same amount would fit; the largest replicas first."""
        amount = sum(gpus * count for gpus, count in parts)
        for gpus in range(min(parts[0][0] - 1, self.largest), 0, -1):
            if amount % gpus == 0 and self.fits(((gpus, amount // gpus),)):
                return amount // gpus, gpus
        return None

    def take(self, job: int, parts: Gang) -> None:
        """Give a job room, each time on the node with the least that is enough; what finds no room is left out."""
        places = self._places.setdefault(job, {})
        for gpus, count in parts:
            left = count
            while left and (
                free := min((one for one, nodes in self._by_free.items() if nodes and one >= gpus), default=0)
            ):
                node = next(iter(self._by_free[free]))
                some = min(left, free // gpus)
                self._change(node, -some * gpus)
                places[node] = places.get(node, 0) + some * gpus
                left -= some

    def give_back(self, job: int) -> dict[str, int]:
        """Take a job away, and return where it was."""
        places = self._places.pop(job, {})
        for node, gpus in places.items():
            if node in self._free:
                self._change(node, gpus)
        return places

    def put_back(self, job: int, places: Mapping[str, int]) -> None:
        """Undo `give_back`."""
        self._places[job] = dict(places)
        for node, gpus in places.items():
            if node in self._free:
                self._change(node, -gpus)

    def fits_without(self, parts: Gang, jobs: Collection[int]) -> bool:
        """Whether it would fit once these jobs are gone."""
        gone = [(job, self.give_back(job)) for job in jobs]
        found = self.fits(parts)
        for job, places in gone:
            self.put_back(job, places)
        return found

    def copy(self) -> "Fleet":
        found = Fleet(FleetState(self._free))
        found._whole, found._places = self._whole, {job: dict(places) for job, places in self._places.items()}
        return found

    def _counts(self) -> dict[int, int]:
        return {gpus: len(nodes) for gpus, nodes in self._by_free.items()}

    def _change(self, node: str, gpus: int) -> None:
        del self._by_free[self._free[node]][node]
        self._free[node] += gpus
        self._by_free[self._free[node]][node] = None


def _lacking(parts: Gang, nodes: Mapping[int, int]) -> tuple[int, int, int] | None:
    """Return the size of replicas for which there is no room, how many there are, and for how many there is; None if all fit.

    `nodes`: how many have so many GPUs. A larger replica counts as the smaller ones that would take no more than its place.
    """
    for gpus, _ in parts:
        wanted = sum(count * (size // gpus) for size, count in parts if size >= gpus)
        room = sum(count * (free // gpus) for free, count in nodes.items() if free >= gpus)
        if wanted > room:
            return gpus, wanted, room
    return None
