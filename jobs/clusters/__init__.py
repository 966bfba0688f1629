"""The port to where replicas run. Every adapter passes the same contract tests (`tests/contract`).

An adapter keeps no truth of its own: any process may call it, at any time, twice.
"""

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Protocol, runtime_checkable

from django.conf import settings
from django.utils.module_loading import import_string

from common.errors import InvalidInput, Problem
from jobs.core.plan import Plan
from jobs.core.verdict import ReplicaUpdate, Seen

Expected = list[tuple[str, int]]  # (role, index) of every replica of the attempt


class Cluster(Protocol):
    HAS_LOGS: bool  # whether what an agent prints can be read: only then `read_log` and `control_url` are asked for
    control_url: str  # where its agents look for us
    HAS_NODES: bool  # whether it has machines of different sizes: `placement_problem` is asked only then
    SEPARATES: bool  # whether jobs of two teams are kept apart; where not, all its teams are one trust domain
    MOUNTS: bool  # whether a volume can be given a path of its own; else only its folder's name is told

    def apply(self, plan: Plan) -> str | None:
        """Create what is missing of the attempt. May be called again; what is there stays as it is.

        Returns words for the job's history where something of it was left out.

        Raises Sealed once the attempt was closed, Refused for what will never work, Unreachable when nobody answers.
        """

    def observe(self, run: str, attempt: int, expected: Expected) -> Seen:
        """The attempt as it is. Raises Unreachable rather than guess."""

    def delete(self, run: str, attempt: int, grace_seconds: int, *, is_now: bool = False) -> None:
        """Seal the attempt, then ask what runs to end; called again until `observe` sees nothing alive.

        `is_now` takes the grace away, also from what was asked to end before and is still within it.
        """

    def end_replicas(self, run: str, attempt: int, places: Expected, grace_seconds: int) -> None:
        """End what is left of replicas that failed or were lost; called again until `observe` sees nothing alive there.

        The attempt goes on, and `apply` with a higher incarnation gives such a place to another replica.
        """

    def read_log(
        self, run: str, attempt: int, place: tuple[str, int, int], since: float | None, take: Callable[[bytes], bool]
    ) -> bool:
        """Of a place (role, index, incarnation). Hand the lines of a replica's own output to `take`, each with its time before it, until that has enough.

        Returns whether that was all. Raises Unreachable where nothing could be read.
        """

    def placement_problem(self, *, processes: int, nodes: int, resource: str, own_nodes: int = 0) -> Problem | None:
        """Why the machines can never take these replicas of so many processes. May ask the cluster, once a minute and briefly.

        `own_nodes`: how many replicas must run at once, each with a machine to itself; 0 where they may share.
        """

    def open_attempts(self) -> list[tuple[str, int]]:
        """(run, attempt) of what is here and was not closed, or lives all the same. Raises Unreachable rather than guess."""

    def changes(self) -> Iterator[str]:
        """Runs whose replicas changed since the last call of `next`; blocks for at most a second at a time, yields "" when idle."""


@runtime_checkable
class Watches(Protocol):
    """A cluster that tells each replica's news by itself, so that rows need not wait for a visit."""

    def replica_updates(self) -> Iterator[list[ReplicaUpdate]]:
        """What changed since the last call of `next`, each replica at its newest; blocks for at most a second, then yields []."""


_making = threading.Lock()


def get(alias: str) -> Cluster:
    """The adapter named `alias` in settings.CLUSTERS; one per process, whichever thread asks first."""
    with _making:
        return _made(alias)


def backend(alias: str) -> type[Cluster]:
    """Its class alone: what it can do in general, without an adapter being made."""
    if alias not in settings.CLUSTERS:
        known = ", ".join(sorted(settings.CLUSTERS)) or "none"
        raise InvalidInput(Problem("cluster", alias, f"is not in CLUSTERS; known are {known}"))
    found: type[Cluster] = import_string(settings.CLUSTERS[alias]["BACKEND"])
    return found


@cache
def _made(alias: str) -> Cluster:
    return backend(alias)(**settings.CLUSTERS[alias].get("OPTIONS", {}))
