"""A cluster in memory on which each job's pods do what its case says, in the words of Kubernetes.

What a pod's status says is read by the code that reads real pods, so a verdict sees what it would see of a real cluster.
The case is named in the job's environment. `FOLDER` holds when each attempt was created: the watcher is another process, and learns from it
when there is news.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from jobs.clusters.kubernetes.build import labels
from jobs.clusters.kubernetes.facts import events as kube_events
from jobs.clusters.kubernetes.facts import pods
from jobs.clusters.memory import MemoryCluster, _Attempt
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Plan
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState

from .cases import Case, PodStep, corpus

CASE = "BENCH_CASE"  # the variable of a job's environment that names its case
FOR_EVER = 1e9
LOOK_SECONDS = 0.1
_OWNER = "owner"


class ScriptedCluster(MemoryCluster):
    """`clock` gives seconds since the epoch."""

    def __init__(self, FOLDER: str, clock: Callable[[], float] = time.time):  # noqa: N803 - an option's name in settings
        super().__init__(clock, run_seconds=FOR_EVER)
        self._folder = Path(FOLDER)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._cases = {case.name: case for case in corpus()}
        self._playing: dict[int, tuple[str, int, Case]] = {}  # by the attempt's identity

    def apply(self, plan: Plan) -> None:
        super().apply(plan)
        attempt = self._attempts[plan.ref]
        if id(attempt) not in self._playing:
            case = self._cases[plan.env[CASE]]
            self._playing[id(attempt)] = (plan.run, plan.attempt, case)
            schedule = {
                "run": plan.run,
                "created": self.clock(),
                "after_seconds": sorted({0.0, *(step.after_seconds for step in case.pods)}),
            }
            (self._folder / f"{plan.run}.{plan.attempt}.json").write_text(json.dumps(schedule))

    def changes(self) -> Iterator[str]:
        """At the moment of each step, and once an attempt is there."""
        reported: set[tuple[str, float]] = set()
        while True:
            for path in self._folder.glob("*.json"):
                yield from self._due(path, reported)
            time.sleep(LOOK_SECONDS)
            yield ""

    def _due(self, path: Path, reported: set[tuple[str, float]]) -> Iterator[str]:
        try:
            one = json.loads(path.read_text())
        except ValueError:  # it is being written; the next look reads it
            return
        for after in one["after_seconds"]:
            if self.clock() >= one["created"] + after and (path.name, after) not in reported:
                reported.add((path.name, after))
                yield one["run"]

    def _advance(self, attempt: _Attempt) -> None:
        super()._advance(attempt)
        if id(attempt) not in self._playing:
            return
        run, number, case = self._playing[id(attempt)]
        for key, one in list(attempt.replicas.items()):
            steps = [step for step in case.pods if step.replica == f"{key[0]}-{key[1]}"]
            due = [step for step in steps if self.clock() >= one.created + step.after_seconds]
            if one.seen.state in ENDED - {ReplicaState.LOST} and (
                not due or one.stop_at is None or not _is_pending(due[-1])
            ):
                continue
            if not due:
                continue
            if due[-1].is_gone or (one.stop_at is not None and _is_pending(due[-1])):
                del attempt.replicas[key]  # a pod that never ran leaves nothing behind when it is deleted
            else:
                one.seen = seen_of(case, due[-1], run=run, attempt=number, key=key)


def seen_of(case: Case, step: PodStep, *, run: str, attempt: int, key: tuple[str, int]) -> ReplicaSeen:
    """The replica as the adapter for Kubernetes would see it: its pod, and what Events say of it."""
    name, uid = labels.pod(run, attempt, *key), f"uid-{key[1]}"
    pod = pods.read_pod(
        {
            "metadata": {
                "name": name,
                "uid": uid,
                "labels": labels.of_replica(run, attempt, *key, owner=_OWNER),
                "ownerReferences": [{"kind": "Service", "name": labels.service(run, attempt), "uid": _OWNER}],
            },
            "spec": dict(step.spec),
            "status": dict(step.status),
        }
    )
    if pod is None:
        raise ValueError(f"{case.name}: the pod of {step.replica} cannot be read")
    events = [
        {
            "metadata": {"name": f"{name}.{number}", "uid": f"event-{number}"},
            "involvedObject": {"kind": "Pod", "name": name, "uid": uid},
            "reason": event.reason,
            "message": event.message,
        }
        for number, event in enumerate(case.events)
        if event.replica == step.replica
    ]
    troubles = tuple(found for event in events if (found := kube_events.read_trouble(event)) is not None)
    if len(troubles) < len(events):
        raise ValueError(f"{case.name}: an event about {step.replica} cannot be read")
    owner = pods.Owner(labels.service(run, attempt), _OWNER, 0, run, attempt, is_sealed=False, is_ending=False)
    picture = pods.AttemptObjects(AttemptRef(run, attempt), owner, pods=(pod,), troubles=troubles)
    (seen,) = picture.replicas([key])
    return replace(seen, version=0)


def _is_pending(step: PodStep) -> bool:
    return step.status.get("phase") == "Pending"
