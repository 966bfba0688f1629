"""Muster's own processes on a test's database: tasks with their sweeper, and the watcher. They can be stopped and killed.

The test itself performs the users' actions (jobs/services.py); everything after that is done by these processes.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from django.db import connection

from agent.build import build
from jobs import services
from jobs.clusters.kubernetes.adapter import AGENT
from jobs.clusters.kubernetes.build import labels
from jobs.core.lifecycle import TERMINAL, Phase
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from rig.processes import Process
from tests.cluster.conftest import MERGE, TOLERATIONS, NamespaceFixture

KIND = "jobs.clusters.kubernetes.KubernetesCluster"
TASKS = (
    "-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads", "--concurrency", "4",
    "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING",
)  # fmt: skip
WATCH = ("manage.py", "watch")
LONG_SECONDS = 300.0  # only turns hanging into a failure
LOOK_SECONDS = 0.2
IMAGE = {"Content-Type": "application/strategic-merge-patch+json"}


def options(place: NamespaceFixture, **more: Any) -> dict[str, Any]:
    said = {
        "KUBECONFIG": str(place.kubeconfig), "NAMESPACE": place.namespace, "IMAGE": "x:1",
        "CONTROL_URL": "http://muster.test", "TOLERATIONS": TOLERATIONS, **more,
    }  # fmt: skip
    return {"BACKEND": KIND, "OPTIONS": said}


@dataclass
class ClusterTestbed:
    """`clusters` as in settings.CLUSTERS. Jobs are named, so that tests can refer to them."""

    place: NamespaceFixture
    user: Any
    team: Any
    folder: Path
    clusters: dict[str, dict[str, Any]]
    processes: dict[str, Process] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)

    # -- processes

    def start(self) -> None:
        if not AGENT.exists():
            build(AGENT)
        for name, words in (("tasks", TASKS), ("watcher", WATCH)):
            made = Process(name, ["env", *self.environment(), sys.executable, *words], log=self.folder / f"{name}.log")
            self.processes[name] = made
            made.start()

    def stop(self) -> None:
        for process in self.processes.values():
            process.go_on()
            process.kill()

    def environment(self) -> list[str]:
        """The environment for this run's servers and the database that pytest created in them."""
        address, mark, query = os.environ["DATABASE_URL"].partition("?")
        database = f"{address.rpartition('/')[0]}/{connection.settings_dict['NAME']}{mark}{query}"
        said = {"DATABASE_URL": database, "MUSTER_CLUSTERS": json.dumps(self.clusters), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}  # fmt: skip
        return [f"{name}={value}" for name, value in said.items()]

    # -- jobs

    def queue(self, name: str, nominal: int = 64, *, cluster: str = "rig", **more: Any) -> Queue:
        return Queue.objects.create(name=name, team=self.team, cluster=cluster, nominal=nominal, **more)

    def submit(self, name: str, queue: Queue, **sent: Any) -> Job:
        sent = {
            "command": "torchrun train.py",
            "nodes": 2,
            "nproc_per_node": 1,
            "max_retries": 0,
            "name": name.replace(" ", "-"),
            **sent,
        }
        self.jobs[name] = services.submit(user=self.user, queue=queue, sent=sent)[0]
        return self.jobs[name]

    def look(self, name: str) -> Job:
        self.jobs[name].refresh_from_db()
        return self.jobs[name]

    def phases(self) -> dict[str, str]:
        """The phases of all jobs in one query, to keep the load of polling low."""
        rows = Job.objects.in_bulk([job.pk for job in self.jobs.values()])
        self.jobs = {name: rows[job.pk] for name, job in self.jobs.items()}
        return {name: str(job.phase) for name, job in self.jobs.items()}

    def until(self, wanted: dict[str, Phase], *, attempts: dict[str, int] | None = None) -> None:
        """Wait until all jobs are in their phases at once; fail as soon as one has ended in another phase."""

        def is_there() -> bool:
            self.phases()
            lost = [name for name in wanted if self._is_lost(self.jobs[name], wanted[name])]
            assert not lost, self.told(*lost)
            return all(
                self.jobs[name].phase == phase and self.jobs[name].attempt >= (attempts or {}).get(name, 0)
                for name, phase in wanted.items()
            )

        self.wait(is_there, lambda: [name for name in wanted if self.jobs[name].phase != wanted[name]])

    def wait(self, is_so: Callable[[], Any], about: Callable[[], Iterable[str]] = tuple) -> Any:
        end = time.monotonic() + LONG_SECONDS
        while not (found := is_so()):
            assert time.monotonic() < end, self.told(*about())
            time.sleep(LOOK_SECONDS)
        return found

    def told(self, *names: str) -> str:
        """Diagnostics for a failure: phases, the jobs' events, and the last log lines."""
        words = [f"phases: {self.phases()}"]
        for name in names:
            words += [f"{name}: {event.kind} {event.phase} {event.attempt} {event.message}" for event in self.jobs[name].events.order_by("id")]  # fmt: skip
        for process in self.processes.values():
            words += [f"{process.name}: {line}" for line in process.log.read_text().splitlines()[-15:]]
        return "\n".join(words)

    def _is_lost(self, job: Job, wanted: Phase) -> bool:
        return job.is_finished and job.phase != wanted

    # -- pods

    def pods(self, name: str, attempt: int = 0) -> list[str]:
        """The names of the job's pods, of this attempt or the current one."""
        job = self.jobs[name]
        return [labels.pod(job.run, attempt or job.attempt, "worker", index) for index in range(job.job_spec.nodes)]

    def annotate(self, name: str, *indexes: int, **said: str | None) -> None:
        """Annotate the pods with these indexes, or all pods."""
        for index, pod in enumerate(self.pods(name)):
            if not indexes or index in indexes:
                self.place.annotate(pod, **said)

    def hang(self, name: str) -> None:
        """Make the pods ignore their deletion, even after they have ended; `annotate(hang=None)` releases them."""
        self.annotate(name, hang="true")
        for pod in self.pods(name):
            body = {"metadata": {"finalizers": ["muster.test/hang"]}}
            answer = self.place.admin.patch(self.place.path("pods", pod), headers=MERGE, json=body)
            assert answer.status_code == 200, answer.text

    def uids(self, name: str) -> dict[str, str]:
        mine, there = self.pods(name), self.place.pods()
        return {pod: there[pod]["metadata"]["uid"] for pod in mine if pod in there}

    def give_image(self, name: str) -> None:
        """Replace the image of the job's waiting pods, so that they start."""
        body = {"spec": {"containers": [{"name": "replica", "image": "x:1"}]}}
        for pod in self.pods(name):
            answer = self.place.admin.patch(self.place.path("pods", pod), headers=IMAGE, json=body)
            assert answer.status_code == 200, answer.text

    # -- final checks

    def end_all(self) -> None:
        """Cancel all live jobs; then only tombstones may be left."""
        for name in self.jobs:
            if self.look(name).phase not in TERMINAL:
                services.cancel(job=self.jobs[name], by=self.user)
        self.wait(lambda: set(self.phases().values()) <= {*TERMINAL}, lambda: self.jobs)
        self.need_nothing_left()

    def need_nothing_left(self) -> None:
        """Nothing is left but tombstones, and objects without an owner, which the cluster's garbage collector removes."""
        self.wait(lambda: not self.place.pods())
        there = {one["metadata"]["name"]: one["metadata"] for one in self.everything("services")}
        assert [name for name, meta in there.items() if labels.SEALED not in meta["labels"]] == []
        owners = {one["uid"] for left in self.everything("secrets") for one in left["metadata"]["ownerReferences"]}
        assert not owners & {meta["uid"] for meta in there.values()}

    def everything(self, kind: str) -> list[dict[str, Any]]:
        return list(self.place.admin.get(self.place.path(kind)).json()["items"])

    def need_one_way_through(self) -> None:
        """Each job ended at most once, and stayed in its final phase."""
        for name, job in self.jobs.items():
            phases = [Phase(event.phase) for event in job.events.filter(kind="step").order_by("id")]
            ends = [phase for phase in phases if phase in TERMINAL]
            assert len(ends) <= 1 and (not ends or phases[-1] is ends[0]), (name, phases)

    def admit_unseen(self, name: str, queue: Queue, **sent: Any) -> Job:
        """An admitted job without a visit: this pauses the tasks process, which the caller must continue."""
        self.processes["tasks"].pause()
        job = self.submit(name, queue, **sent)
        schedule()
        assert self.look(name).phase == Phase.ADMITTED
        return job


class Ledger(threading.Thread):
    """An independent observer of the pods, several times a second: the UIDs of each name, and runs with two live attempts."""

    def __init__(self, place: NamespaceFixture):
        super().__init__(daemon=True)
        self.place = place
        self.uids: dict[str, set[str]] = defaultdict(set)
        self.doubled: set[tuple[str, tuple[int, ...]]] = set()
        self.looks = 0
        self._over = threading.Event()

    def run(self) -> None:
        with self.place.plane.client() as client:
            while not self._over.wait(LOOK_SECONDS):
                with suppress(httpx.HTTPError, ValueError):
                    answer = client.get(self.place.path("pods"))
                    if answer.status_code == 200:
                        self._note(answer.json()["items"])

    def stop(self) -> None:
        self._over.set()
        self.join(60)

    def _note(self, pods: list[dict[str, Any]]) -> None:
        self.looks += 1
        alive: dict[str, set[int]] = defaultdict(set)
        for one in pods:
            meta = one["metadata"]
            self.uids[meta["name"]].add(meta["uid"])
            if one["status"].get("phase") not in ("Succeeded", "Failed"):
                run, attempt = labels.attempt_of(meta["labels"])
                alive[run].add(attempt)
        self.doubled |= {(run, tuple(sorted(numbers))) for run, numbers in alive.items() if len(numbers) > 1}

    def need_nothing_doubled(self) -> None:
        assert self.looks > 0
        assert {name: uids for name, uids in self.uids.items() if len(uids) > 1} == {}
        assert self.doubled == set()
