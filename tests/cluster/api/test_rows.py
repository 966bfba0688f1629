"""Rows of replicas come from the watch: the watcher writes them, and rings a doorbell only for changes that need a visit."""

from dataclasses import replace

import pytest

from jobs.clusters.kubernetes.watch.change_queue import AGAIN_SECONDS, ChangeQueue, Runs
from jobs.control import watcher
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase
from jobs.models import Replica
from jobs.scheduling.scheduler import schedule
from tests.cluster.api.test_life import life  # noqa: F401 - a fixture
from tests.cluster.conftest import REF
from tests.support.patience import until
from tests.unit.clusters.kubernetes.test_pods import read


def test_a_run_is_announced_immediately_and_later_changes_are_batched():
    runs = Runs()
    runs.add("1-a")
    assert runs.take(now=0.0) == ["1-a"]
    runs.add("1-a")
    runs.add("2-b")
    runs.add("1-a")
    assert runs.take(now=0.1) == ["2-b"]
    assert runs.wait_seconds(now=0.1) == pytest.approx(AGAIN_SECONDS - 0.1)
    assert runs.take(now=AGAIN_SECONDS) == ["1-a"]
    assert (runs.take(now=9.0), runs.wait_seconds(now=9.0)) == ([], None)


def test_only_the_newest_state_of_a_replica_is_kept_and_only_ends_need_a_visit():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    for version, phase in enumerate(("Pending", "Running")):
        pod = replace(read(phase=phase), version=version)
        queue.pod(REF, pod)
    assert queue.take_pods(0) == {REF: {pod.name: pod}}
    assert queue.take_runs(0) == []
    queue.pod(REF, read(phase="Failed"))
    assert (list(queue.take_pods(0)), queue.take_runs(0)) == ([REF], ["7-abc"])
    assert queue.take_pods(0) == {}


def test_a_pending_pod_without_node_and_reason_does_not_update_its_row():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    pod = replace(read(phase="Pending"), node="", reason="")
    queue.pod(REF, pod)
    assert (queue.take_pods(0), queue.take_runs(0)) == ({}, [])
    for touched in (replace(pod, node="n1"), replace(pod, reason="no node has 8 GPUs")):
        queue.pod(REF, touched)
        assert queue.take_pods(0) == {REF: {pod.name: touched}}


def test_a_deleted_pod_needs_a_visit_and_does_not_update_its_row():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    queue.pod(REF, read(phase="Running"), is_gone=True)
    assert (queue.take_pods(0), queue.take_runs(0)) == ({}, ["7-abc"])


def test_without_a_writer_of_rows_every_change_needs_a_visit():
    queue = ChangeQueue()
    queue.is_asked_for_runs = True
    queue.pod(REF, read(phase="Running"))
    assert queue.take_runs(0) == ["7-abc"]


class Desk:
    """A watcher's two threads, run in turns by the test."""

    def __init__(self, cluster):
        self.changes, self.replica_updates, self.writer = (
            cluster.changes(),
            cluster.replica_updates(),
            watcher.Writer("local"),
        )
        next(self.changes)

    def rows(self, job) -> list[str]:
        self.writer.take(next(self.replica_updates))
        return list(
            Replica.objects.filter(job=job, attempt=job.attempt).order_by("index").values_list("state", flat=True)
        )

    def rings(self) -> set[str]:
        return {run for run, _ in zip(self.changes, range(2), strict=False) if run}


@pytest.fixture
def starting(life):  # noqa: F811
    """A job whose pods are created and which is not visited any more; its rows do not reflect the pods yet."""
    job = life.submit_only()
    schedule()
    visit(job.pk, store=DjangoStore(), clusters=lambda _: life.cluster, clock=lambda: job.created_at, owner="test")
    job.refresh_from_db()
    assert job.phase in (Phase.STARTING, Phase.RUNNING)
    Replica.objects.filter(job=job).update(state="pending", node="", seen_version=0, seen_at=None)
    return job


def test_rows_follow_the_pods_without_a_visit(place, life, starting):  # noqa: F811
    desk = Desk(place.cluster())
    until(lambda: desk.rows(starting) == ["running", "running"])
    assert all(Replica.objects.filter(job=starting).values_list("node", flat=True))
    until(lambda: starting.run not in desk.rings())
    place.annotate(life.pod(starting, 1), exit_code="3")
    until(lambda: desk.rows(starting) == ["running", "failed"])
    until(lambda: starting.run in desk.rings())
    assert Replica.objects.get(job=starting, index=1).exit_code == 3


def test_changes_unwritten_by_a_dead_watcher_are_written_by_the_next(place, life, starting):  # noqa: F811
    """Changes between two watchers are in the list with which the next one begins."""
    first = place.cluster()
    replica_updates = first.replica_updates()
    until(lambda: next(replica_updates))
    desk = Desk(place.cluster())
    until(lambda: desk.rows(starting) == ["running", "running"])
