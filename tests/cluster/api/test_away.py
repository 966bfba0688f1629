"""An outage of the API server for a minute, and repeatedly cut watches: jobs end as usual, only later.

Muster's own processes do the work (testbed.py); the test plays the users, the pods and the fault.
"""

import time

import pytest

from jobs import services
from jobs.core.lifecycle import Phase
from rig.gate import GateFault
from rig.plane import START_SECONDS
from rig.world import let_see_nodes
from tests.cluster.api.testbed import ClusterTestbed, Ledger, options
from tests.cluster.conftest import start_followers
from tests.support.machine import need

AWAY_SECONDS = 60.0  # the promise; longer than the limits for silent nodes, for fresh views and for leases
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def gate(place):
    with place.gate() as gate:
        yield gate


@pytest.fixture
def testbed(place, gate, transactional_db, people, team, settings, tmp_path):
    """Three clusters in one namespace: direct, through the gate, and with an image that never starts."""
    let_see_nodes(place.admin, place.namespace)
    settings.CLUSTERS = {
        "rig": options(place),
        "gated": options(place, KUBECONFIG=str(gate.kubeconfig(place.kubeconfig))),
        "slow": options(place, IMAGE="rig/waits"),
    }
    testbed = ClusterTestbed(place, people.owner, team, tmp_path, settings.CLUSTERS)
    testbed.start()
    yield testbed
    testbed.stop()
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


# Jobs named after their state when the server goes down, with the phase and attempt that they must reach.
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


@pytest.mark.full
def test_an_api_server_outage_of_a_minute_fails_no_job(testbed, gate, ledger, plane, api_server):
    queues = _assemble(testbed, gate)
    assert {str(job.phase) for job in testbed.jobs.values()} == {str(phase) for phase in Phase} - {Phase.FAILED, Phase.CANCELLED}  # fmt: skip
    before = {name: testbed.uids(name) for name in ("running", "holder", "starting", "launching")}
    api_server.kill()
    gone = time.monotonic()
    testbed.processes["tasks"].go_on()
    _act_meanwhile(testbed, queues)
    _need_patience(testbed, until=gone + AWAY_SECONDS)

    gate.troubles.clear()
    api_server.start()
    api_server.until(plane.is_ready, seconds=START_SECONDS)
    start_followers(plane)
    for name in STOPPING:
        testbed.annotate(name, hang=None)
    testbed.give_image("starting")
    testbed.until({name: phase for name, (phase, _) in ENDS.items()}, attempts={name: number for name, (_, number) in ENDS.items()})  # fmt: skip
    assert {name: testbed.look(name).attempt for name in ENDS} == {name: number for name, (_, number) in ENDS.items()}
    for name, uids in before.items():
        assert uids.items() <= testbed.uids(name).items(), "what was there is there"
    assert len(testbed.uids("launching")) == 40 and len(before["launching"]) == 25
    assert "worker-1 exited with code 3" in testbed.look("failing").message
    _go_on_as_usual(testbed)
    ledger.need_nothing_doubled()
    testbed.need_one_way_through()


def _assemble(testbed: ClusterTestbed, gate) -> dict:
    """Create a job in every phase, and one for every way of ending."""
    queues = {name: testbed.queue(name, cluster=cluster, nominal=nominal) for name, cluster, nominal in (
        ("wide", "rig", 64), ("narrow", "rig", 2), ("slow", "slow", 2), ("gated", "gated", 40))}  # fmt: skip
    testbed.submit("holder", queues["narrow"])
    up = ["done", "running", "suspended", "resumed meanwhile", "cancelled meanwhile", *STOPPING]
    for name in up:
        testbed.submit(name, queues["wide"], max_retries=1 if name == "retrying" else 0)
    testbed.until(dict.fromkeys(("holder", *up), Phase.RUNNING))
    testbed.submit("queued", queues["narrow"])
    testbed.submit("starting", queues["slow"], start_timeout_seconds=3600)
    _begin_to_launch(testbed, gate, queues["gated"])
    for name in ("suspended", "resumed meanwhile"):
        services.suspend(job=testbed.jobs[name], by=testbed.user)
    testbed.annotate("done", exit_code="0")
    testbed.until({"done": Phase.SUCCEEDED, "suspended": Phase.SUSPENDED, "resumed meanwhile": Phase.SUSPENDED})
    _begin_to_stop(testbed)
    testbed.until({"queued": Phase.QUEUED, "starting": Phase.STARTING, "launching": Phase.STARTING})
    testbed.wait(lambda: testbed.look("starting").applied_at, lambda: ["starting"])
    testbed.admit_unseen("admitted", queues["wide"])
    testbed.phases()
    return queues


def _begin_to_launch(testbed: ClusterTestbed, gate, queue) -> None:
    """Start a launch that creates 25 pods and is refused from then on."""

    def is_late(verb: str, kind: str) -> bool:
        return (verb, kind) == ("POST", "pods") and gate.seen["POST pods"] > 25

    gate.troubles.append(GateFault(is_late, (429, "1"), times=1_000_000))
    testbed.submit("launching", queue, nodes=40)
    testbed.wait(
        lambda: len((testbed.look("launching").attempt and testbed.uids("launching")) or ()) == 25,
        lambda: ["launching"],
    )
    assert testbed.look("launching").applied_at is None


def _begin_to_stop(testbed: ClusterTestbed) -> None:
    """Stop jobs whose pods hang, so that they are still stopping when the server goes down."""
    for name in STOPPING:
        testbed.hang(name)
    testbed.annotate("completing", exit_code="0")
    testbed.annotate("failing", 1, exit_code="3")
    testbed.annotate("retrying", 1, exit_code="1")
    services.cancel(job=testbed.jobs["cancelling"], by=testbed.user)
    services.suspend(job=testbed.jobs["suspending"], by=testbed.user)
    testbed.until(dict.fromkeys(STOPPING, Phase.STOPPING))


def _act_meanwhile(testbed: ClusterTestbed, queues: dict) -> None:
    """Users continue to submit, cancel and resume during the outage."""
    services.cancel(job=testbed.jobs["cancelled meanwhile"], by=testbed.user)
    services.resume(job=testbed.jobs["resumed meanwhile"], by=testbed.user)
    testbed.submit("submitted meanwhile", queues["wide"])


def _need_patience(testbed: ClusterTestbed, *, until: float) -> None:
    """During the outage no job ends, and no job moves to RUNNING."""
    while time.monotonic() < until:
        phases = testbed.phases()
        ended = {name for name in phases if testbed.jobs[name].is_finished}
        assert ended == {"done"}, testbed.told(*ended)
        time.sleep(1)
    for name in ("running", "holder"):
        assert phases[name] == Phase.RUNNING, testbed.told(name)
    for name in ("admitted", "submitted meanwhile", "resumed meanwhile", "launching", "starting"):
        assert phases[name] == Phase.STARTING, testbed.told(name)
    for name in (*STOPPING, "cancelled meanwhile"):
        assert phases[name] == Phase.STOPPING, testbed.told(name)


def _go_on_as_usual(testbed: ClusterTestbed) -> None:
    """Queued jobs start, suspended jobs resume, and running jobs end."""
    services.resume(job=testbed.jobs["suspending"], by=testbed.user)
    testbed.annotate("holder", exit_code="0")
    testbed.until({"holder": Phase.SUCCEEDED, "queued": Phase.RUNNING, "suspending": Phase.RUNNING})
    for name in ("running", "queued", "suspending", "launching"):
        testbed.annotate(name, exit_code="0")
        testbed.until({name: Phase.SUCCEEDED})
    testbed.end_all()


CUT_SECONDS = 2.0
LIVES = ("well", "ill", "again", "asleep", "unwanted", "robbed", "steady")


@pytest.mark.full
def test_repeatedly_cut_watches_miss_no_end_of_a_job(testbed, gate, ledger):
    """Step by step, so that cuts fall between the steps; tasks and watcher reach the server only through the gate."""
    gate.cut_watches_after = CUT_SECONDS
    queue = testbed.queue("gated", 64, cluster="gated")
    for name in LIVES:
        testbed.submit(name, queue, max_retries=1 if name == "again" else 0)
    testbed.until(dict.fromkeys(LIVES, Phase.RUNNING))
    steady = testbed.uids("steady")
    testbed.annotate("well", 0, exit_code="0")
    testbed.annotate("ill", 1, exit_code="3")
    testbed.until({"ill": Phase.FAILED})
    testbed.annotate("again", 0, exit_code="1")
    services.suspend(job=testbed.jobs["asleep"], by=testbed.user)
    testbed.until({"again": Phase.RUNNING, "asleep": Phase.SUSPENDED}, attempts={"again": 2})
    testbed.place.remove("pods", testbed.pods("robbed")[1])
    services.cancel(job=testbed.jobs["unwanted"], by=testbed.user)
    services.resume(job=testbed.jobs["asleep"], by=testbed.user)
    testbed.until(
        {"robbed": Phase.FAILED, "unwanted": Phase.CANCELLED, "asleep": Phase.RUNNING}, attempts={"asleep": 2}
    )
    testbed.annotate("well", 1, exit_code="0")
    testbed.annotate("again", exit_code="0")
    testbed.until({"well": Phase.SUCCEEDED, "again": Phase.SUCCEEDED, "steady": Phase.RUNNING, "asleep": Phase.RUNNING})
    assert "worker-1 exited with code 3" in testbed.jobs["ill"].message
    assert "worker-1 vanished" in testbed.jobs["robbed"].message
    assert testbed.uids("steady") == steady and testbed.jobs["steady"].attempt == 1
    testbed.wait(lambda: gate.seen["WATCH pods"] >= 10)  # of two processes: each was cut several times
    testbed.end_all()
    ledger.need_nothing_doubled()
    testbed.need_one_way_through()
