"""Replicas' rows come from the watch itself: the watcher writes them down, and rings only for what needs a visit."""

from dataclasses import replace

import pytest

from jobs.clusters.kubernetes.change_queue import AGAIN_SECONDS, ChangeQueue, Runs
from jobs.control import watcher
from jobs.control.reconciler import visit
from jobs.control.scheduler import schedule
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase
from jobs.models import Replica
from tests.cluster.api.test_life import life  # noqa: F401 - a fixture
from tests.cluster.api.test_pods import read
from tests.cluster.conftest import until


def test_a_run_is_told_at_once_and_then_once_for_all_that_came_meanwhile():
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


def test_replicas_are_folded_to_their_newest_and_only_ends_are_visited():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    for version, phase in enumerate(("Pending", "Running")):
        pod = replace(read(phase=phase), version=version)
        queue.pod(("7-abc", 1), pod)
    assert queue.take_pods(0) == {("7-abc", 1): {pod.name: pod}}
    assert queue.take_runs(0) == []
    queue.pod(("7-abc", 1), read(phase="Failed"))
    assert (list(queue.take_pods(0)), queue.take_runs(0)) == ([("7-abc", 1)], ["7-abc"])
    assert queue.take_pods(0) == {}


def test_a_pod_that_nobody_looked_at_yet_is_no_news_to_its_row():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    pod = replace(read(phase="Pending"), node="", reason="")
    queue.pod(("7-abc", 1), pod)
    assert (queue.take_pods(0), queue.take_runs(0)) == ({}, [])
    for touched in (replace(pod, node="n1"), replace(pod, reason="no node has 8 GPUs")):
        queue.pod(("7-abc", 1), touched)
        assert queue.take_pods(0) == {("7-abc", 1): {pod.name: touched}}


def test_a_pod_that_is_gone_is_visited_and_has_no_look_to_write():
    queue = ChangeQueue()
    queue.is_asked_for_runs = queue.is_asked_for_pods = True
    queue.pod(("7-abc", 1), read(phase="Running"), is_gone=True)
    assert (queue.take_pods(0), queue.take_runs(0)) == ({}, ["7-abc"])


def test_without_somebody_who_writes_rows_every_change_is_visited():
    queue = ChangeQueue()
    queue.is_asked_for_runs = True
    queue.pod(("7-abc", 1), read(phase="Running"))
    assert queue.take_runs(0) == ["7-abc"]


class Desk:
    """A watcher's two threads, taken turns with by the test."""

    def __init__(self, cluster):
        self.changes, self.replica_updates, self.writer = cluster.changes(), cluster.replica_updates(), watcher.Writer()
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
    """A job whose pods are created, and which nobody visits any more; its rows say nothing of them yet."""
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


def test_a_watcher_that_died_before_it_wrote_is_made_up_for_by_the_next(place, life, starting):  # noqa: F811
    """What stands between two watchers is told by the list that the next one begins with."""
    first = place.cluster()
    replica_updates = first.replica_updates()
    until(lambda: next(replica_updates))
    desk = Desk(place.cluster())
    until(lambda: desk.rows(starting) == ["running", "running"])
