"""What a watch tells, held until somebody takes it: replicas folded to their newest, and runs that need a visit.

A visit looks at a whole attempt, so a thousand small changes must not ask for a thousand visits: one run is told again
only after a pause, and then once for all that came meanwhile.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.core.verdict import ENDED, ReplicaState

from .cache import Key
from .pods import Pod

AGAIN_SECONDS = 0.5  # between two visits for the sake of one run
FLUSH_SECONDS = 0.05  # between two batches of rows, so that a busy cluster costs twenty commits a second
MANY = 10  # rows that are worth a commit
TRICKLE_SECONDS = 0.08  # after a batch of fewer, and no longer than the watcher rests: a large gang comes up for half a minute, a few at a time


@dataclass
class Runs:
    """Runs to visit, each at most once in AGAIN_SECONDS. Pure; `now` in seconds of one clock."""

    _waiting: dict[str, None] = field(default_factory=dict)
    _told: dict[str, float] = field(default_factory=dict)

    def add(self, run: str) -> None:
        self._waiting[run] = None

    def take(self, *, now: float) -> list[str]:
        self._told = {run: at for run, at in self._told.items() if now < at + AGAIN_SECONDS}
        due = [run for run in self._waiting if run not in self._told]
        for run in due:
            del self._waiting[run]
            self._told[run] = now
        return due

    def wait_seconds(self, *, now: float) -> float | None:
        """Until one of those that wait is due; None where nothing waits."""
        return min((max(0.0, self._told.get(run, 0.0) + AGAIN_SECONDS - now) for run in self._waiting), default=None)


class ChangeQueue:
    """Of one cluster and process: the watch puts, threads of the watcher take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._changed = threading.Condition()
        self._runs, self._pods = Runs(), dict[Key, dict[str, Pod]]()
        self._count, self._taken_at, self._taken = 0, 0.0, 0
        self.is_asked_for_runs = self.is_asked_for_pods = False

    @property
    def is_asked(self) -> bool:
        return self.is_asked_for_runs or self.is_asked_for_pods

    def run(self, run: str) -> None:
        if self.is_asked_for_runs:
            with self._changed:
                self._runs.add(run)
                self._changed.notify_all()

    def pod(self, key: Key, pod: Pod, *, is_gone: bool = False) -> None:
        """Who writes rows down sees by itself when all run, and only what ended is then worth a visit."""
        if self.is_asked_for_pods and not is_gone and not _is_untouched(pod):
            with self._changed:
                self._put(key, pod)
        if not self.is_asked_for_pods or is_gone or pod.state in ENDED:
            self.run(key[0])

    def take_runs(self, most_seconds: float) -> list[str]:
        """Waits for the first one that is due."""
        end = self._clock() + most_seconds
        with self._changed:
            while not (due := self._runs.take(now=self._clock())) and (left := end - self._clock()) > 0:
                wait = self._runs.wait_seconds(now=self._clock())
                self._changed.wait(left if wait is None else min(left, wait))
        return due

    def take_pods(self, most_seconds: float) -> dict[Key, dict[str, Pod]]:
        """The newest of each; at once when it was quiet, else together with what comes in the seconds above."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > 0, most_seconds)
            late = self._taken_at + TRICKLE_SECONDS - self._clock()
            if self._count and self._taken < MANY and late > 0:
                self._changed.wait_for(lambda: self._count >= MANY, late)
        if self._count and (early := self._taken_at + FLUSH_SECONDS - self._clock()) > 0:
            time.sleep(early)
        with self._changed:
            self._taken_at, self._taken = self._clock(), self._count
            taken, self._pods, self._count = self._pods, {}, 0
        return taken

    def _put(self, key: Key, pod: Pod) -> None:
        """Wakes who waits where there is something, and where there is enough: not for each of a thousand."""
        of_attempt = self._pods.setdefault(key, {})
        self._count += pod.name not in of_attempt
        of_attempt[pod.name] = pod
        if self._count in (1, MANY):
            self._changed.notify_all()


def _is_untouched(pod: Pod) -> bool:
    """Created, and nobody looked at it yet: its row says so since it was decided to create it."""
    return pod.state is ReplicaState.PENDING and not pod.node and not pod.reason
