"""The API server away for a minute, and watches that are cut all the time: the same lives as ever, a little later.

Muster's own processes do the work (crew.py); the test is the people, the pods and the fault.
"""

import time

import pytest

from jobs import services
from jobs.core.lifecycle import Phase
from rig.gate import Trouble
from rig.plane import START_SECONDS
from rig.world import let_see_nodes
from tests.machine import need

from .conftest import start_followers
from .crew import Crew, Ledger, options

AWAY_SECONDS = 60.0  # the promise; longer than a node's silence is forgiven, a picture believed and a lease held
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def gate(place):
    with place.gate() as gate:
        yield gate


@pytest.fixture
def crew(place, gate, transactional_db, people, team, settings, tmp_path):
    """Three names for one namespace: straight to the server, through the gate, and with an image that never comes up."""
    let_see_nodes(place.admin, place.namespace)
    settings.CLUSTERS = {
        "rig": options(place),
        "gated": options(place, KUBECONFIG=str(gate.kubeconfig(place.kubeconfig))),
        "slow": options(place, IMAGE="rig/waits"),
    }
    crew = Crew(place, people.owner, team, tmp_path, settings.CLUSTERS)
    crew.start()
    yield crew
    crew.stop()
    for kind in ("clusterrolebindings", "clusterroles"):
        place.admin.delete(f"{RBAC}/{kind}/{place.namespace}-nodes")


@pytest.fixture
def ledger(place):
    ledger = Ledger(place)
    ledger.start()
    yield ledger
    ledger.stop()


@pytest.fixture
def api_server(plane):
    server = plane.processes.get("kube-apiserver")
    need(server is not None, "only the rig's own API server can be killed")
    yield server
    if not server.is_running:
        server.start()
    server.until(plane.is_ready, seconds=START_SECONDS)


# What each of them is doing when the server goes, and where it must end (phase, attempt).
STOPPING = ("cancelling", "suspending", "retrying", "failing", "completing")
ENDS = {
    "done": (Phase.SUCCEEDED, 1),
    "running": (Phase.RUNNING, 1),
    "holder": (Phase.RUNNING, 1),
    "queued": (Phase.QUEUED, 0),
    "admitted": (Phase.RUNNING, 1),
    "launching": (Phase.RUNNING, 1),
    "starting": (Phase.RUNNING, 1),
    "cancelling": (Phase.CANCELLED, 1),
    "suspending": (Phase.SUSPENDED, 1),
    "retrying": (Phase.RUNNING, 2),
    "failing": (Phase.FAILED, 1),
    "completing": (Phase.SUCCEEDED, 1),
    "suspended": (Phase.SUSPENDED, 1),
    "cancelled meanwhile": (Phase.CANCELLED, 1),
    "resumed meanwhile": (Phase.RUNNING, 2),
    "submitted meanwhile": (Phase.RUNNING, 1),
}


@pytest.mark.long
def test_a_server_that_is_away_for_a_minute_fails_no_job(crew, gate, ledger, plane, api_server):
    queues = _assemble(crew, gate)
    assert {str(job.phase) for job in crew.jobs.values()} == {str(phase) for phase in Phase} - {Phase.FAILED, Phase.CANCELLED}  # fmt: skip
    before = {name: crew.uids(name) for name in ("running", "holder", "starting", "launching")}
    api_server.kill()
    gone = time.monotonic()
    crew.processes["tasks"].go_on()
    _act_meanwhile(crew, queues)
    _need_patience(crew, until=gone + AWAY_SECONDS)

    gate.troubles.clear()
    api_server.start()
    api_server.until(plane.is_ready, seconds=START_SECONDS)
    start_followers(plane)
    for name in STOPPING:
        crew.annotate(name, hang=None)
    crew.give_image("starting")
    crew.until({name: phase for name, (phase, _) in ENDS.items()}, attempts={name: number for name, (_, number) in ENDS.items()})  # fmt: skip
    assert {name: crew.look(name).attempt for name in ENDS} == {name: number for name, (_, number) in ENDS.items()}
    for name, uids in before.items():
        assert uids.items() <= crew.uids(name).items(), "what was there is there"
    assert len(crew.uids("launching")) == 40 and len(before["launching"]) == 25
    assert "worker-1 exited with code 3" in crew.look("failing").message
    _go_on_as_usual(crew)
    ledger.need_nothing_doubled()
    crew.need_one_way_through()


def _assemble(crew: Crew, gate) -> dict:
    """A job in every phase, and in every way of ending."""
    queues = {name: crew.queue(name, cluster=cluster, nominal=nominal) for name, cluster, nominal in (
        ("wide", "rig", 64), ("narrow", "rig", 2), ("slow", "slow", 2), ("gated", "gated", 40))}  # fmt: skip
    crew.submit("holder", queues["narrow"])
    up = ["done", "running", "suspended", "resumed meanwhile", "cancelled meanwhile", *STOPPING]
    for name in up:
        crew.submit(name, queues["wide"], max_retries=1 if name == "retrying" else 0)
    crew.until(dict.fromkeys(("holder", *up), Phase.RUNNING))
    crew.submit("queued", queues["narrow"])
    crew.submit("starting", queues["slow"], start_timeout_seconds=3600)
    _begin_to_launch(crew, gate, queues["gated"])
    for name in ("suspended", "resumed meanwhile"):
        services.suspend(job=crew.jobs[name], by=crew.user)
    crew.annotate("done", exit_code="0")
    crew.until({"done": Phase.SUCCEEDED, "suspended": Phase.SUSPENDED, "resumed meanwhile": Phase.SUSPENDED})
    _begin_to_stop(crew)
    crew.until({"queued": Phase.QUEUED, "starting": Phase.STARTING, "launching": Phase.STARTING})
    crew.wait(lambda: crew.look("starting").applied_at, lambda: ["starting"])
    crew.admit_unseen("admitted", queues["wide"])
    crew.phases()
    return queues


def _begin_to_launch(crew: Crew, gate, queue) -> None:
    """It comes to its 25th pod, and is refused from then on."""

    def is_late(verb: str, kind: str) -> bool:
        return (verb, kind) == ("POST", "pods") and gate.seen["POST pods"] > 25

    gate.troubles.append(Trouble(is_late, (429, "1"), times=1_000_000))
    crew.submit("launching", queue, nodes=40)
    crew.wait(
        lambda: len((crew.look("launching").attempt and crew.uids("launching")) or ()) == 25, lambda: ["launching"]
    )
    assert crew.look("launching").applied_at is None


def _begin_to_stop(crew: Crew) -> None:
    """All of them hang, so that they are still at it when the server goes."""
    for name in STOPPING:
        crew.hang(name)
    crew.annotate("completing", exit_code="0")
    crew.annotate("failing", 1, exit_code="3")
    crew.annotate("retrying", 1, exit_code="1")
    services.cancel(job=crew.jobs["cancelling"], by=crew.user)
    services.suspend(job=crew.jobs["suspending"], by=crew.user)
    crew.until(dict.fromkeys(STOPPING, Phase.STOPPING))


def _act_meanwhile(crew: Crew, queues: dict) -> None:
    """People do not notice."""
    services.cancel(job=crew.jobs["cancelled meanwhile"], by=crew.user)
    services.resume(job=crew.jobs["resumed meanwhile"], by=crew.user)
    crew.submit("submitted meanwhile", queues["wide"])


def _need_patience(crew: Crew, *, until: float) -> None:
    """Nothing ends, and nothing is believed to run, because nobody answers."""
    while time.monotonic() < until:
        phases = crew.phases()
        ended = {name for name in phases if crew.jobs[name].is_finished}
        assert ended == {"done"}, crew.told(*ended)
        time.sleep(1)
    for name in ("running", "holder"):
        assert phases[name] == Phase.RUNNING, crew.told(name)
    for name in ("admitted", "submitted meanwhile", "resumed meanwhile", "launching", "starting"):
        assert phases[name] == Phase.STARTING, crew.told(name)
    for name in (*STOPPING, "cancelled meanwhile"):
        assert phases[name] == Phase.STOPPING, crew.told(name)


def _go_on_as_usual(crew: Crew) -> None:
    """What waited gets its turn, what slept wakes, what runs ends."""
    services.resume(job=crew.jobs["suspending"], by=crew.user)
    crew.annotate("holder", exit_code="0")
    crew.until({"holder": Phase.SUCCEEDED, "queued": Phase.RUNNING, "suspending": Phase.RUNNING})
    for name in ("running", "queued", "suspending", "launching"):
        crew.annotate(name, exit_code="0")
        crew.until({name: Phase.SUCCEEDED})
    crew.end_all()


CUT_SECONDS = 2.0
LIVES = ("well", "ill", "again", "asleep", "unwanted", "robbed", "steady")


@pytest.mark.long
def test_watches_that_are_cut_all_the_time_lose_no_end(crew, gate, ledger):
    """Step by step, so that the cuts fall between them; tasks and watcher see through the gate alone."""
    gate.cut_watches_after = CUT_SECONDS
    queue = crew.queue("gated", 64, cluster="gated")
    for name in LIVES:
        crew.submit(name, queue, max_retries=1 if name == "again" else 0)
    crew.until(dict.fromkeys(LIVES, Phase.RUNNING))
    steady = crew.uids("steady")
    crew.annotate("well", 0, exit_code="0")
    crew.annotate("ill", 1, exit_code="3")
    crew.until({"ill": Phase.FAILED})
    crew.annotate("again", 0, exit_code="1")
    services.suspend(job=crew.jobs["asleep"], by=crew.user)
    crew.until({"again": Phase.RUNNING, "asleep": Phase.SUSPENDED}, attempts={"again": 2})
    crew.place.remove("pods", crew.pods("robbed")[1])
    services.cancel(job=crew.jobs["unwanted"], by=crew.user)
    services.resume(job=crew.jobs["asleep"], by=crew.user)
    crew.until({"robbed": Phase.FAILED, "unwanted": Phase.CANCELLED, "asleep": Phase.RUNNING}, attempts={"asleep": 2})
    crew.annotate("well", 1, exit_code="0")
    crew.annotate("again", exit_code="0")
    crew.until({"well": Phase.SUCCEEDED, "again": Phase.SUCCEEDED, "steady": Phase.RUNNING, "asleep": Phase.RUNNING})
    assert "worker-1 exited with code 3" in crew.jobs["ill"].message
    assert "worker-1 vanished" in crew.jobs["robbed"].message
    assert crew.uids("steady") == steady and crew.jobs["steady"].attempt == 1
    crew.wait(lambda: gate.seen["WATCH pods"] >= 10)  # of two processes: each was cut several times
    crew.end_all()
    ledger.need_nothing_doubled()
    crew.need_one_way_through()
