"""etcd set back to an older snapshot while jobs run: what the cluster forgot is begun anew, what came back is ended again."""

import shutil
from itertools import count

import pytest

from controlplane.celery import app
from jobs import services
from jobs.clusters.kubernetes import labels
from jobs.core.lifecycle import ON_CLUSTER, Phase
from rig.plane import START_SECONDS, ControlPlane
from rig.world import fill, settle

from .conftest import Place
from .crew import Crew, Ledger, options

SERVERS = ("etcd", "kube-apiserver")
OTHERS = ("kube-controller-manager", "kube-scheduler", "kwok")
_numbers = count(1)


@pytest.fixture(scope="module")
def own(plane):
    """A control plane that may lose its memory; `plane` says whether one can be built here."""
    own = ControlPlane(has_lifted_limits=True)
    try:
        own.start()
        fill(own, nodes=10)
        yield own
    finally:
        own.stop()


@pytest.fixture
def crew(own, agent, transactional_db, people, team, settings, tmp_path):
    with own.client() as admin:
        namespace = f"restored-{next(_numbers)}"
        place = Place(own, namespace, settle(own, namespace), agent, admin)
        settings.CLUSTERS = {"rig": options(place)}
        crew = Crew(place, people.owner, team, tmp_path, settings.CLUSTERS)
        crew.start()
        yield crew
        crew.stop()


@pytest.fixture
def ledger(crew):
    ledger = Ledger(crew.place)
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
    """As the manual says: everything stands still meanwhile, and is started anew."""
    stop(plane, *OTHERS, *reversed(SERVERS))
    shutil.rmtree(plane.folder / "etcd")
    shutil.copytree(plane.folder / "snapshot", plane.folder / "etcd")
    start(plane)


# Before the snapshot all of these run; `begun` is submitted after it.
RUNNING = ("kept", "done", "failed", "cancelled", "suspended", "retried", "ending")


@pytest.mark.long
def test_an_older_snapshot_doubles_nothing_and_forgets_no_end(crew, own, ledger):
    queue = crew.queue("gpus", 160, gpus_per_node=8, resource="gpu")
    for name in RUNNING:
        crew.submit(name, queue, max_retries=2 if name == "retried" else 0)
    crew.until(dict.fromkeys(RUNNING, Phase.RUNNING))
    take_snapshot(own)
    first = {name: crew.uids(name) for name in RUNNING}

    _go_on(crew, queue)
    ends = {"done": Phase.SUCCEEDED, "failed": Phase.FAILED, "cancelled": Phase.CANCELLED, "suspended": Phase.SUSPENDED}
    at_the_end = {name: _history(crew, name) for name in ends}
    restore_snapshot(own)
    assert first["done"].items() <= {name: one["metadata"]["uid"] for name, one in crew.place.pods().items()}.items()

    # `begun` and the second attempt of `retried` are forgotten: both are lost, and begun anew, after what came back is gone.
    crew.until({"kept": Phase.RUNNING, "begun": Phase.RUNNING, "retried": Phase.RUNNING, "ending": Phase.CANCELLED}, attempts={"begun": 2, "retried": 3})  # fmt: skip
    crew.wait(lambda: _are_strays_gone(crew), lambda: ends)
    assert crew.uids("kept") == first["kept"] and crew.look("kept").attempt == 1
    assert {name: _history(crew, name) for name in ends} == at_the_end
    assert crew.phases().items() >= {name: str(phase) for name, phase in ends.items()}.items()
    assert any("vanished" in event.message for event in crew.jobs["begun"].events.filter(attempt=1))
    services.resume(job=crew.jobs["suspended"], by=crew.user)
    crew.until({"suspended": Phase.RUNNING})
    crew.end_all()
    ledger.need_nothing_doubled()
    crew.need_one_way_through()


def _go_on(crew: Crew, queue) -> None:
    """What the snapshot knows nothing of."""
    crew.submit("begun", queue, max_retries=1)
    crew.annotate("done", exit_code="0")
    crew.annotate("failed", 1, exit_code="3")
    crew.annotate("retried", 0, exit_code="1")
    services.cancel(job=crew.jobs["cancelled"], by=crew.user)
    services.suspend(job=crew.jobs["suspended"], by=crew.user)
    crew.hang("ending")
    services.cancel(job=crew.jobs["ending"], by=crew.user)
    crew.until({
        "begun": Phase.RUNNING, "done": Phase.SUCCEEDED, "failed": Phase.FAILED, "retried": Phase.RUNNING,
        "cancelled": Phase.CANCELLED, "suspended": Phase.SUSPENDED, "ending": Phase.STOPPING,
    }, attempts={"retried": 2})  # fmt: skip


def _history(crew: Crew, name: str) -> list[tuple[str, int, str]]:
    return list(crew.look(name).events.filter(kind="step").order_by("id").values_list("phase", "attempt", "message"))


def _are_strays_gone(crew: Crew) -> bool:
    """Asked as the clock of an installation asks (beat): what is open belongs to a job that is at it."""
    app.send_task("jobs.strays", ignore_result=True)
    open_now = {labels.attempt_of(one["metadata"]["labels"]) for one in crew.place.pods().values()}
    for one in crew.everything("services"):
        if labels.SEALED not in one["metadata"]["labels"]:
            open_now.add(labels.attempt_of(one["metadata"]["labels"]))
    crew.phases()
    return open_now <= {(job.run, job.attempt) for job in crew.jobs.values() if job.phase in ON_CLUSTER}


@pytest.mark.long
def test_everything_is_killed_and_started_again_and_all_jobs_are_taken_up(crew, own, ledger):
    queue = crew.queue("gpus", 160, gpus_per_node=8, resource="gpu")
    names = ("kept", "ending", "finishing")
    for name in names:
        crew.submit(name, queue)
    crew.until(dict.fromkeys(names, Phase.RUNNING))
    before = {name: crew.uids(name) for name in names}
    crew.hang("ending")
    services.cancel(job=crew.jobs["ending"], by=crew.user)
    crew.until({"ending": Phase.STOPPING})
    crew.stop()
    for process in own.processes.values():
        process.kill()
    services.suspend(job=crew.jobs["kept"], by=crew.user)
    services.resume(job=crew.jobs["kept"], by=crew.user)
    crew.submit("waiting", queue)

    start(own)
    crew.start()
    crew.until({"kept": Phase.RUNNING, "finishing": Phase.RUNNING, "ending": Phase.STOPPING, "waiting": Phase.RUNNING})
    assert {name: crew.uids(name) for name in names} == before, "the very same pods"
    crew.annotate("ending", hang=None)
    crew.annotate("finishing", exit_code="0")
    crew.until({"ending": Phase.CANCELLED, "finishing": Phase.SUCCEEDED})
    assert {job.attempt for job in crew.jobs.values()} == {1}
    crew.end_all()
    ledger.need_nothing_doubled()
    crew.need_one_way_through()
