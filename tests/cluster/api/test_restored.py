"""etcd is restored from an older snapshot while jobs run: forgotten attempts start again, reappeared ones are ended again."""

import shutil
from itertools import count

import pytest

from controlplane.celery import app
from jobs import services
from jobs.clusters.kubernetes.build import labels
from jobs.core.lifecycle import ON_CLUSTER, Phase
from rig.plane import START_SECONDS, ControlPlane
from rig.world import fill, settle
from tests.cluster.api.testbed import ClusterTestbed, Ledger, options
from tests.cluster.conftest import NamespaceFixture

SERVERS = ("etcd", "kube-apiserver")
OTHERS = ("kube-controller-manager", "kube-scheduler", "kwok")
_numbers = count(1)


@pytest.fixture(scope="module")
def own(plane):
    """A control plane whose etcd may be restored; `plane` skips the test if none can be built here."""
    own = ControlPlane(has_lifted_limits=True)
    try:
        own.start()
        fill(own, nodes=10)
        yield own
    finally:
        own.stop()


@pytest.fixture
def testbed(own, agent, transactional_db, people, team, settings, tmp_path):
    with own.client() as admin:
        namespace = f"restored-{next(_numbers)}"
        place = NamespaceFixture(own, namespace, settle(own, namespace), agent, admin)
        settings.CLUSTERS = {"rig": options(place)}
        testbed = ClusterTestbed(place, people.owner, team, tmp_path, settings.CLUSTERS)
        testbed.start()
        yield testbed
        testbed.stop()


@pytest.fixture
def ledger(testbed):
    ledger = Ledger(testbed.place)
    ledger.start()
    yield ledger
    ledger.stop()


def stop(plane: ControlPlane, *names: str) -> None:
    for name in names:
        plane.processes[name].stop()


def start(plane: ControlPlane) -> None:
    for name in SERVERS:
        plane.processes[name].start()
    plane.processes["kube-apiserver"].until(plane.is_ready, seconds=START_SECONDS)
    for name in OTHERS:
        if not plane.processes[name].is_running:
            plane.processes[name].start()


def take_snapshot(plane: ControlPlane) -> None:
    stop(plane, *OTHERS, *reversed(SERVERS))
    shutil.copytree(plane.folder / "etcd", plane.folder / "snapshot")
    start(plane)


def restore_snapshot(plane: ControlPlane) -> None:
    """Restore as the manual describes: everything is stopped meanwhile, and started again."""
    stop(plane, *OTHERS, *reversed(SERVERS))
    shutil.rmtree(plane.folder / "etcd")
    shutil.copytree(plane.folder / "snapshot", plane.folder / "etcd")
    start(plane)


# All of these run before the snapshot; `begun` is submitted after it.
RUNNING = ("kept", "done", "failed", "cancelled", "suspended", "retried", "ending")


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/orphans.py"))
def test_an_older_snapshot_duplicates_nothing_and_reverts_no_end(testbed, own, ledger):
    queue = testbed.queue("gpus", 160, gpus_per_node=8, resource="gpu")
    for name in RUNNING:
        testbed.submit(name, queue, max_retries=2 if name == "retried" else 0)
    testbed.until(dict.fromkeys(RUNNING, Phase.RUNNING))
    take_snapshot(own)
    first = {name: testbed.uids(name) for name in RUNNING}

    _go_on(testbed, queue)
    ends = {"done": Phase.SUCCEEDED, "failed": Phase.FAILED, "cancelled": Phase.CANCELLED, "suspended": Phase.SUSPENDED}
    at_the_end = {name: _history(testbed, name) for name in ends}
    restore_snapshot(own)
    assert first["done"].items() <= {name: one["metadata"]["uid"] for name, one in testbed.place.pods().items()}.items()

    # `begun` and the second attempt of `retried` are forgotten: both are lost, and start again once reappeared pods are gone.
    testbed.until({"kept": Phase.RUNNING, "begun": Phase.RUNNING, "retried": Phase.RUNNING, "ending": Phase.CANCELLED}, attempts={"begun": 2, "retried": 3})  # fmt: skip
    testbed.wait(lambda: _are_strays_gone(testbed), lambda: ends)
    assert testbed.uids("kept") == first["kept"] and testbed.look("kept").attempt == 1
    assert {name: _history(testbed, name) for name in ends} == at_the_end
    assert testbed.phases().items() >= {name: str(phase) for name, phase in ends.items()}.items()
    assert any("vanished" in event.message for event in testbed.jobs["begun"].events.filter(attempt=1))
    services.resume(job=testbed.jobs["suspended"], by=testbed.user)
    testbed.until({"suspended": Phase.RUNNING})
    testbed.end_all()
    ledger.need_nothing_doubled()
    testbed.need_one_way_through()


def _go_on(testbed: ClusterTestbed, queue) -> None:
    """Changes that the snapshot does not contain."""
    testbed.submit("begun", queue, max_retries=1)
    testbed.annotate("done", exit_code="0")
    testbed.annotate("failed", 1, exit_code="3")
    testbed.annotate("retried", 0, exit_code="1")
    services.cancel(job=testbed.jobs["cancelled"], by=testbed.user)
    services.suspend(job=testbed.jobs["suspended"], by=testbed.user)
    testbed.hang("ending")
    services.cancel(job=testbed.jobs["ending"], by=testbed.user)
    testbed.until({
        "begun": Phase.RUNNING, "done": Phase.SUCCEEDED, "failed": Phase.FAILED, "retried": Phase.RUNNING,
        "cancelled": Phase.CANCELLED, "suspended": Phase.SUSPENDED, "ending": Phase.STOPPING,
    }, attempts={"retried": 2})  # fmt: skip


def _history(testbed: ClusterTestbed, name: str) -> list[tuple[str, int, str]]:
    return list(testbed.look(name).events.filter(kind="step").order_by("id").values_list("phase", "attempt", "message"))


def _are_strays_gone(testbed: ClusterTestbed) -> bool:
    """Trigger the orphan sweep as beat does; return whether every open attempt belongs to an active job."""
    app.send_task("jobs.strays", ignore_result=True)
    open_now = {labels.attempt_of(one["metadata"]["labels"]) for one in testbed.place.pods().values()}
    for one in testbed.everything("services"):
        if labels.SEALED not in one["metadata"]["labels"]:
            open_now.add(labels.attempt_of(one["metadata"]["labels"]))
    testbed.phases()
    return open_now <= {(job.run, job.attempt) for job in testbed.jobs.values() if job.phase in ON_CLUSTER}


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/orphans.py"))
def test_after_killing_and_restarting_everything_all_jobs_continue(testbed, own, ledger):
    queue = testbed.queue("gpus", 160, gpus_per_node=8, resource="gpu")
    names = ("kept", "ending", "finishing")
    for name in names:
        testbed.submit(name, queue)
    testbed.until(dict.fromkeys(names, Phase.RUNNING))
    before = {name: testbed.uids(name) for name in names}
    testbed.hang("ending")
    services.cancel(job=testbed.jobs["ending"], by=testbed.user)
    testbed.until({"ending": Phase.STOPPING})
    testbed.stop()
    for process in own.processes.values():
        process.kill()
    services.suspend(job=testbed.jobs["kept"], by=testbed.user)
    services.resume(job=testbed.jobs["kept"], by=testbed.user)
    testbed.submit("waiting", queue)

    start(own)
    testbed.start()
    testbed.until(
        {"kept": Phase.RUNNING, "finishing": Phase.RUNNING, "ending": Phase.STOPPING, "waiting": Phase.RUNNING}
    )
    assert {name: testbed.uids(name) for name in names} == before, "the very same pods"
    testbed.annotate("ending", hang=None)
    testbed.annotate("finishing", exit_code="0")
    testbed.until({"ending": Phase.CANCELLED, "finishing": Phase.SUCCEEDED})
    assert {job.attempt for job in testbed.jobs.values()} == {1}
    testbed.end_all()
    ledger.need_nothing_doubled()
    testbed.need_one_way_through()
