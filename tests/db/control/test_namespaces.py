"""A cluster's NAMESPACE may change while jobs run: an attempt is looked for where its row says that it was made."""

import threading

import pytest
from django.utils import timezone

from common.errors import Unreachable
from jobs import clusters
from jobs.control import attempt_rows, orphans, watcher
from jobs.control.store import DjangoStore, plan_of
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import Phase
from jobs.models import Attempt, Job
from jobs.scheduling.scheduler import schedule

pytestmark = pytest.mark.django_db


@pytest.fixture
def moved(lab, settings, monkeypatch):
    """Gives the lab's cluster another namespace, as a change of the setting and a restart do."""
    monkeypatch.setattr(clusters, "get", lambda alias: lab.cluster)
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}
    lab.cluster.namespace = "old"

    def move(namespace: str) -> None:
        lab.cluster.namespace = namespace

    return move


def places(lab) -> list[tuple[str, int]]:
    """The namespace and the number of each attempt that is open in the cluster."""
    return [(name, ref.number) for name in ("old", "new") for ref in lab.cluster.open_attempts(name)]


def test_an_attempt_goes_on_and_ends_where_it_was_made_and_the_next_one_is_made_in_the_new_namespace(lab, moved):
    job = lab.running(max_retries=1)
    moved("new")
    lab.visit(job, times=3)
    assert (job.phase, job.attempt, places(lab)) == (Phase.RUNNING, 1, [("old", 1)])
    lab.finish(job, 1)
    lab.visit(job, times=4)
    assert (job.phase, job.attempt, places(lab)) == (Phase.RUNNING, 2, [("new", 2)])
    assert list(job.attempts.values_list("namespace", flat=True)) == ["old", "new"]
    lab.finish(job, 0, 0)
    assert job.phase == Phase.SUCCEEDED and places(lab) == []


def test_an_attempt_that_was_decided_before_the_change_is_created_where_its_row_says(lab, moved):
    """The process that recorded the step has died before it called the cluster."""
    job = lab.submit()
    lab.cluster.is_reachable = False
    schedule()
    lab.visit(job, times=2)
    assert (job.phase, job.applied_at) == (Phase.STARTING, None)
    moved("new")
    lab.cluster.is_reachable = True
    lab.visit(job, times=3)
    assert (job.phase, places(lab)) == (Phase.RUNNING, [("old", 1)])


def test_a_replaced_replica_is_made_beside_the_others(lab, moved):
    job = lab.running(nodes=3, min_nodes=2)
    moved("new")
    lab.cluster.finish(job.run, 1, "worker", index=2, exit_code=1)
    lab.visit(job, times=4)
    assert job.replicas.get(index=2).incarnation == 1
    assert (job.phase, places(lab)) == (Phase.RUNNING, [("old", 1)])


@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_namespace_in_its_row_or_without_a_row_the_clusters_own_holds(lab, moved, is_there):
    job = lab.running()
    rows = Attempt.objects.filter(job=job)
    if is_there:
        rows.update(namespace="")
    else:
        job.events.update(launch=None)
        job.replicas.update(launch=None)
        rows.delete()
    lab.visit(job, times=2)
    assert job.phase == Phase.RUNNING
    lab.finish(job, 0, 0)
    assert job.phase == Phase.SUCCEEDED and places(lab) == []


def test_only_the_namespaces_of_attempts_that_last_are_in_use(lab, moved):
    assert attempt_rows.namespaces("local") == set()
    job = lab.running()
    moved("new")
    other = lab.running(nodes=1)
    assert attempt_rows.namespaces("local") == {"old", "new"} and attempt_rows.namespaces("another") == set()
    lab.finish(job, 0, 0)
    assert attempt_rows.namespaces("local") == {"new"}
    Attempt.objects.filter(job=other).update(namespace="")
    assert attempt_rows.namespaces("local") == set()


def test_strays_are_ended_where_attempts_last_although_another_namespace_does_not_answer(lab, moved, monkeypatch):
    ended, _ = lab.running(nodes=1), lab.running(nodes=1)
    revive(lab, ended)
    moved("new")
    later = lab.running(nodes=1)
    revive(lab, later)
    Job.objects.update(phase_since=timezone.now() - 6 * orphans.SETTLED)
    listed = lab.cluster.open_attempts

    def listed_but_here(namespace: str = "") -> list[AttemptRef]:
        if not namespace:
            raise Unreachable("pods is forbidden")
        return listed(namespace)

    with monkeypatch.context() as patched:
        patched.setattr(lab.cluster, "open_attempts", listed_but_here)
        assert orphans.sweep_all() == 1
    assert lab.cluster.alive(ended.run) == [] and len(lab.cluster.alive(later.run)) == 1
    assert orphans.sweep_all() == 1 and lab.cluster.alive(later.run) == []


def revive(lab, job) -> None:
    """End the job; then restore its cluster to before that."""
    lab.finish(job, 0)
    lab.cluster.forget(job.run, 1)
    lab.cluster.apply(plan_of(job, 1))


class Watching:
    """A cluster that reports changes by itself; it stops its reader after some turns."""

    namespace = "new"

    def __init__(self, stop: threading.Event, turns: int):
        self.stop, self.turns, self.watched = stop, turns, []

    def replica_updates(self):
        for _ in range(self.turns):
            yield []
        self.stop.set()
        yield []

    def watch(self, namespaces) -> None:
        self.watched.append(set(namespaces))


def test_the_watcher_also_watches_where_attempts_last(lab, moved, monkeypatch):
    lab.running(nodes=1)
    stop = threading.Event()
    cluster = Watching(stop, turns=3)
    monkeypatch.setattr(clusters, "get", lambda alias: cluster)
    watcher.write("local", stop)
    assert cluster.watched == [{"old"}]  # asked at the beginning, and again only after a while
    monkeypatch.setattr(watcher, "NAMESPACES_SECONDS", -1.0)
    stop.clear()
    watcher.write("local", stop)
    assert len(cluster.watched) == 4


def test_what_a_visit_holds_names_the_attempt_in_its_namespace(lab, moved):
    job = lab.running()
    moved("new")
    held = DjangoStore().take(job.pk, owner="test", now=lab.clock())
    assert held is not None and held.ref == AttemptRef(job.run, 1, "old")
