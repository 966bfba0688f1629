"""Queue changes from a watch until they are taken: replicas reduced to their newest state, and runs that need a visit.

A visit observes a whole attempt, so a thousand small changes must not cause a thousand visits: a run is returned again
only after a pause, and then once for all changes of that time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.core.attempt_ref import AttemptRef
from jobs.core.verdict import ENDED, ReplicaState

from ..facts.pods import Pod

AGAIN_SECONDS = 0.5  # between two visits to the same run
FLUSH_SECONDS = 0.05  # between two batches of rows, so that a busy cluster costs twenty commits a second
MANY = 10  # rows that are worth a commit
# After a smaller batch, and no longer than the watcher rests: a large gang comes up for half a minute, a few replicas
# at a time.
TRICKLE_SECONDS = 0.08


@dataclass
class Runs:
    """Runs to visit, each at most once in AGAIN_SECONDS. Pure; `now` in seconds of one clock."""

    _waiting: dict[str, None] = field(default_factory=dict)
    _taken_at: dict[str, float] = field(default_factory=dict)

    def add(self, run: str) -> None:
        self._waiting[run] = None

    def take(self, *, now: float) -> list[str]:
        self._taken_at = {run: at for run, at in self._taken_at.items() if now < at + AGAIN_SECONDS}
        due = [run for run in self._waiting if run not in self._taken_at]
        for run in due:
            del self._waiting[run]
            self._taken_at[run] = now
        return due

    def wait_seconds(self, *, now: float) -> float | None:
        """Return the seconds until a waiting run is due; None if none waits."""
        return min(
            (max(0.0, self._taken_at.get(run, 0.0) + AGAIN_SECONDS - now) for run in self._waiting), default=None
        )


class ChangeQueue:
    """The changes of one cluster in one process: the watch puts, the watcher's threads take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._changed = threading.Condition()
        self._runs, self._pods = Runs(), dict[AttemptRef, dict[str, Pod]]()
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

    def pod(self, ref: AttemptRef, pod: Pod, *, is_gone: bool = False) -> None:
        """Add a changed pod.

        The writer of rows notices by itself when all replicas run, so with a writer only ended pods need a visit.
        """
        if self.is_asked_for_pods and not is_gone and not _is_untouched(pod):
            with self._changed:
                self._put(ref, pod)
        if not self.is_asked_for_pods or is_gone or pod.state in ENDED:
            self.run(ref.run)

    def take_runs(self, most_seconds: float) -> list[str]:
        """Return the runs that are due; wait up to `most_seconds` for the first one."""
        end = self._clock() + most_seconds
        with self._changed:
            while not (due := self._runs.take(now=self._clock())) and (left := end - self._clock()) > 0:
                wait = self._runs.wait_seconds(now=self._clock())
                self._changed.wait(left if wait is None else min(left, wait))
        return due

    def take_pods(self, most_seconds: float) -> dict[AttemptRef, dict[str, Pod]]:
        """Return the newest state of each changed pod, waiting up to `most_seconds` for the first.

        Returns at once after a quiet time, else together with further changes (FLUSH_SECONDS, TRICKLE_SECONDS).
        """
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

    def _put(self, ref: AttemptRef, pod: Pod) -> None:
        """Store a pod. Wakes the taker for the first one and once there are MANY, not for each of a thousand."""
        of_attempt = self._pods.setdefault(ref, {})
        self._count += pod.name not in of_attempt
        of_attempt[pod.name] = pod
        if self._count in (1, MANY):
            self._changed.notify_all()


def _is_untouched(pod: Pod) -> bool:
    """Whether a pod is created and nothing has happened to it yet: its row has shown that since its creation."""
    return pod.state is ReplicaState.PENDING and not pod.node and not pod.reason
