"""A tasks process dies at every fault point of launching 200 pods, ending and observing; each time another takes over."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common import faultpoints
from jobs import services
from jobs.clusters.kubernetes.api.parallel import FIRST
from jobs.clusters.kubernetes.build import labels
from jobs.control.store import plan_of
from jobs.core.lifecycle import Phase
from jobs.models import ClusterCheck, Job
from rig.world import let_see_nodes
from tests.cluster.api.test_nodes import LABEL, silence
from tests.cluster.api.testbed import ClusterTestbed, options
from tests.cluster.conftest import NamespaceFixture
from tests.support.monarch_operator import OLD, Operator, defined
from tests.support.patience import until
from volumes.models import KeeperVisit, LeftFolder, Volume

ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = 200
LEASE = 5.0  # longer than a lease (jobs/core/lease.py): each life's clock is this far ahead of the previous one's


def both(*names: str) -> list[str]:
    return [f"{name}.{when}" for name in names for when in ("before", "after")]


VISIT = ("store.take", "store.record", "cluster.observe", "kube.look")
WITHOUT_PODS = both(
    *VISIT, "scheduler.queue", "kube.owner", "kube.agent", "kube.secret", "kube.missing", "kube.read", "store.renew",
)  # fmt: skip
AFTER_PODS = both("store.applied", "store.release")
ENDING = both("store.record", "cluster.delete", "kube.names", "kube.delete")
CLOSING = both("kube.disown", "kube.close")
BELLS = both("doorbell.task", "doorbell.hint")
SMALL = both(
    "kube.remove", "kube.node", "kube.watch", "watcher.ring", "watcher.rows", "kube.list", "kube.tidy", "strays.delete"
)  # fmt: skip
MESH = both("mesh.shape", "mesh.create", "mesh.find", "mesh.pods", "mesh.label")
MESH_ENDING = both("mesh.delete")
# Covered elsewhere: elastic jobs in tests/system/faults, logs of containers in tests/cluster/node/test_unreachable.py.
ELSEWHERE = both(
    "cluster.end_replicas", "cluster.read_log", "kube.inspect", "kube.events", "kube.namespace", "kube.review"
)  # the last ones are for a person who asks again: two only read, and a half-made namespace is never taken over
SUBMITTING = both("cluster.placement")
CLAIMS = both("kube.claim")
KEEPERS = both("kube.keeper")
PROBES = both("kube.probe")


class Visitors:
    """Tasks processes that live one after the other and work on one job."""

    def __init__(self, testbed: ClusterTestbed, marks: Path):
        self.testbed, self.marks, self.ahead = testbed, marks, 0.0
        marks.mkdir()
        env = {**os.environ, "CRASH_MARKS": str(marks), **dict(one.split("=", 1) for one in testbed.environment())}
        self._log = (marks.parent / "visitors.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.api.visitor"], cwd=ROOT, env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def arm(self, *points: str) -> None:
        for point in points:
            (self.marks / point).unlink(missing_ok=True)
            (self.marks / f"{point}.armed").touch()

    def armed(self) -> list[str]:
        return sorted(path.name.removesuffix(".armed") for path in self.marks.glob("*.armed"))

    def live(self, do: str, *, ahead: float = 0.0, **asked: Any) -> bool:
        """Run one life; return whether it died at a fault point instead of coming to its end."""
        self.ahead += LEASE
        self._process.stdin.write(json.dumps({"do": do, "ahead": self.ahead + ahead, **asked}) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -9), f"{self.armed()} armed\n{(self.marks.parent / 'visitors.log').read_text()[-3000:]}"
        return code != 0

    def die_at(self, *points: str, do: str = "visit", pods_of: str = "", **asked: Any) -> None:
        """Run lives, each of which must die, until every point was passed; existing pods must survive all of them."""
        self.arm(*points)
        before: dict[str, str] = {}
        while left := self.armed():
            assert self.live(do, **asked), f"it came to its end and never to {left}"
            if pods_of:
                now = self.testbed.uids(pods_of)
                assert before.items() <= now.items(), "what one had made, the next one made again"
                before = now


@pytest.fixture
def gate(place):
    with place.gate() as gate:
        yield gate


@pytest.fixture
def testbed(place: NamespaceFixture, gate, transactional_db, people, team, settings, tmp_path):
    let_see_nodes(place.admin, place.namespace)
    node = place.add_node()
    settings.CLUSTERS = {
        "rig": options(place),
        "gated": options(place, KUBECONFIG=str(gate.kubeconfig(place.kubeconfig)), IMAGE="rig/waits"),
        "lost": options(place, NODE_SELECTOR={LABEL: node}, NODE_LOST_SECONDS=1),
    }
    yield ClusterTestbed(place, people.owner, team, tmp_path, settings.CLUSTERS)
    for kind in ("clusterrolebindings", "clusterroles"):
        place.admin.delete(f"{RBAC}/{kind}/{place.namespace}-nodes")


@pytest.fixture
def visitors(testbed, tmp_path):
    visitors = Visitors(testbed, tmp_path / "marks")
    yield visitors
    visitors.close()


def test_every_fault_point_of_the_tasks_process_and_the_watcher_is_covered():
    here = {*WITHOUT_PODS, *AFTER_PODS, *ENDING, *CLOSING, *BELLS, *SMALL, *both("cluster.apply", "kube.pod")}
    here |= {*ELSEWHERE, *SUBMITTING, *MESH, *MESH_ENDING, *CLAIMS, *KEEPERS, *PROBES}
    mine = ("scheduler.", "store.", "cluster.", "kube.", "mesh.", "doorbell.", "watcher.", "strays.")
    assert here == {point for point in faultpoints.POINTS if point.startswith(mine)}


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_two_hundred_pods_are_launched_and_ended_despite_a_crash_at_every_point(testbed, visitors, gate):
    job = testbed.submit("wide", testbed.queue("wide", PODS, cluster="gated"), nodes=PODS, start_timeout_seconds=3600)
    visit = {"job": job.pk, "phases": [Phase.RUNNING], "cluster": "gated"}
    gate.refuse(429, verb="POST", kind="pods", times=1_000_000, retry_after="1")
    visitors.die_at(*WITHOUT_PODS, "cluster.apply.before", **visit)
    assert testbed.look("wide").phase == Phase.STARTING and testbed.place.pods() == {}
    gate.troubles.clear()
    _die_in_the_middle(testbed, visitors, visit)
    visitors.die_at(*AFTER_PODS, "cluster.apply.after", pods_of="wide", **visit)
    testbed.give_image("wide")
    assert not visitors.live("visit", **visit)
    _need_one_of_everything(testbed)

    services.cancel(job=job, by=testbed.user)
    ended = {**visit, "phases": [Phase.CANCELLED]}
    testbed.annotate("wide", 0, hang="true")  # so that the end takes until every point was passed
    visitors.die_at(*ENDING, **ended)
    testbed.annotate("wide", 0, hang=None)
    visitors.die_at(*CLOSING, **ended)
    assert not visitors.live("visit", **ended)
    assert testbed.look("wide").phase == Phase.CANCELLED
    testbed.need_nothing_left()
    testbed.need_one_way_through()


def _die_in_the_middle(testbed: ClusterTestbed, visitors: Visitors, visit: dict[str, Any]) -> None:
    """Each life creates a few dozen pods at most, and no pod is created twice."""
    visitors.die_at("kube.pod.before", **visit)
    assert testbed.place.pods() == {}
    uids: dict[str, str] = {}
    for life in range(3):
        visitors.die_at("kube.pod.after", **visit)
        now = testbed.uids("wide")
        assert uids.items() < now.items() and len(now) <= FIRST * (life + 1) < PODS
        uids = now


def _need_one_of_everything(testbed: ClusterTestbed) -> None:
    job, pods = testbed.look("wide"), testbed.place.pods()
    assert (job.phase, job.attempt, job.failures) == (Phase.RUNNING, 1, 0)
    assert sorted(pods) == sorted(testbed.pods("wide")) and len(pods) == PODS
    (owner,), (_,) = testbed.everything("services"), testbed.everything("secrets")
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in pods.values()} == {owner["metadata"]["uid"]}


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_process_dies_while_it_rings_a_doorbell(testbed, visitors):
    """Each point has a job of its own, since the progress of the visit at that moment is not determined."""
    queue = testbed.queue("small")
    for point in BELLS:
        visit = {"job": testbed.submit(point.replace(".", "-"), queue).pk, "phases": [Phase.RUNNING]}
        visitors.die_at(point, **visit)
        assert not visitors.live("visit", **visit)
    assert set(testbed.phases().values()) == {Phase.RUNNING} and len(testbed.place.pods()) == 2 * len(BELLS)


def _running(testbed: ClusterTestbed, visitors: Visitors, cluster: str = "rig") -> dict[str, Any]:
    """Start a small job; return the arguments to visit it."""
    job = testbed.submit("small", testbed.queue("small", cluster=cluster))
    visit = {"job": job.pk, "cluster": cluster}
    assert not visitors.live("visit", **visit, phases=[Phase.RUNNING])
    testbed.look("small")
    return visit


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_crash_while_a_claim_is_made_leaves_one_claim_and_its_job_goes_on(testbed, visitors):
    Volume.objects.create(team=testbed.team, cluster="rig", name="data", size="1Gi")
    job = testbed.submit("small", testbed.queue("small"), volumes=["data"])
    visit = {"job": job.pk, "cluster": "rig"}
    visitors.die_at(*CLAIMS, **visit, phases=[Phase.STARTING])
    assert not visitors.live("visit", **visit, phases=[Phase.STARTING])
    assert [one["metadata"]["name"] for one in testbed.everything("persistentvolumeclaims")] == [
        "muster-volume-nlp.data"
    ]
    assert len(testbed.place.pods()) == 2


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/keeping.py", "volumes"))
def test_a_crash_while_a_keeper_is_made_or_given_up_leaves_at_most_one_and_no_folder_is_forgotten(testbed, visitors):
    LeftFolder.objects.create(
        job=10**6, run="1000000-abc", cluster="rig", namespace=testbed.place.namespace, claim="none"
    )
    name = labels.keeper("none")
    for point in KEEPERS:  # each life is further ahead than a process may work on it
        visitors.die_at(point, do="keep", ahead=60.0 * KEEPERS.index(point))
        assert list(testbed.place.pods()) in ([], [name])
    assert not visitors.live("keep", ahead=180.0)
    assert list(testbed.place.pods()) == [name] and KeeperVisit.objects.get().folders == ["1000000-abc"]
    visitors.die_at(*KEEPERS, do="keep", ahead=3600.0)
    assert not visitors.live("keep", ahead=3600.0)  # it is late: given up
    until(lambda: testbed.place.pods() == {})
    assert "not ended in 10 min" in KeeperVisit.objects.get().message and LeftFolder.objects.count() == 1


@pytest.mark.soak(
    guards=("jobs/clusters/kubernetes", "jobs/control/cluster_checks.py", "jobs/submission/cluster_checks.py")
)
def test_a_crash_while_a_check_makes_or_deletes_its_pods_leaves_none(testbed, visitors):
    row = ClusterCheck.objects.create(cluster="rig", image="x:1", asked_by=testbed.user)
    name = labels.check(row.uid, "first")
    visitors.die_at(*PROBES, do="check")
    assert list(testbed.place.pods()) in ([], [name])
    assert not visitors.live("check")
    assert list(testbed.place.pods()) == [name]
    assert not visitors.live("check", ahead=660.0)  # it is late, and no kubelet has its log
    row.refresh_from_db()
    assert row.ended_at and row.findings[0]["about"] == "pods" and row.removed_at is None
    visitors.die_at(*PROBES, do="check", ahead=760.0)
    until(lambda: not visitors.live("check", ahead=760.0) and ClusterCheck.objects.get().removed_at)
    assert testbed.place.pods() == {}


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_crash_during_the_placement_check_submits_nothing(testbed, visitors):
    testbed.queue("small")
    asked = {"do": "submit", "user": testbed.user.username, "queue": "small"}
    visitors.die_at(*SUBMITTING, **asked)
    assert not Job.objects.exists()
    assert not visitors.live(**asked)
    assert Job.objects.count() == 1


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_pods_are_removed_one_by_one_despite_crashes(testbed, visitors):
    visit = _running(testbed, visitors)
    one = testbed.place.pods()[testbed.pods("small")[0]]
    meta = {"name": "stranger", "labels": one["metadata"]["labels"]}
    testbed.place.make("pods", {"metadata": meta, "spec": {**one["spec"], "nodeName": None}})
    services.cancel(job=testbed.jobs["small"], by=testbed.user)
    visitors.die_at(*both("kube.remove"), **visit, phases=[Phase.CANCELLED])
    assert not visitors.live("visit", **visit, phases=[Phase.CANCELLED])
    assert list(testbed.place.pods()) == ["stranger"]


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_the_pods_of_an_operators_mesh_are_taken_over_despite_crashes(testbed, visitors):
    """By the older release's shape, where the pods have to be labelled, too."""
    admin, namespace = testbed.place.admin, testbed.place.namespace
    with defined(admin, OLD), Operator(admin, namespace, OLD):
        asked = {"framework": "monarch", "command": "python3 train.py", "mesh_launcher": "MonarchMesh"}
        job = testbed.submit("meshed", testbed.queue("meshed"), **asked)
        visit = {"job": job.pk}
        visitors.die_at(*MESH, **visit, phases=[Phase.RUNNING])
        assert not visitors.live("visit", **visit, phases=[Phase.RUNNING])
        run = testbed.look("meshed").run
        assert sorted(testbed.place.pods()) == [f"{run}-1-controller-0", "mesh-0", "mesh-1"]
        services.cancel(job=job, by=testbed.user)
        visitors.die_at(*MESH_ENDING, **visit, phases=[Phase.CANCELLED])
        assert not visitors.live("visit", **visit, phases=[Phase.CANCELLED])
        until(lambda: testbed.place.pods() == {})


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_lost_node_is_confirmed_despite_crashes(testbed, visitors):
    visit = _running(testbed, visitors, "lost")
    testbed.annotate("small", hang="true")
    silence(testbed.place, testbed.place.nodes[0])
    visitors.die_at(*both("kube.node"), **visit, phases=[Phase.FAILED])
    assert not visitors.live("visit", **visit, phases=[Phase.FAILED])
    assert "does not answer" in testbed.look("small").message
    testbed.need_nothing_left()


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_reappeared_earlier_attempt_is_ended_despite_crashes(testbed, visitors):
    visit = _running(testbed, visitors)
    services.suspend(job=testbed.jobs["small"], by=testbed.user)
    assert not visitors.live("visit", **visit, phases=[Phase.SUSPENDED])
    services.resume(job=testbed.jobs["small"], by=testbed.user)
    assert not visitors.live("visit", **visit, phases=[Phase.RUNNING])
    (stone,) = (
        one["metadata"]["name"] for one in testbed.everything("services") if labels.SEALED in one["metadata"]["labels"]
    )
    testbed.place.remove("services", stone)
    testbed.place.cluster().apply(plan_of(testbed.look("small"), 1))  # as after a restored backup
    present = testbed.uids("small")
    assert testbed.jobs["small"].attempt == 2 and len(testbed.place.pods()) == 4
    visitors.die_at(*both("strays.delete"), do="strays", ahead=60.0)
    until(lambda: not visitors.live("strays", ahead=60.0) and len(testbed.place.pods()) == 2)
    assert testbed.uids("small") == present and testbed.look("small").phase == Phase.RUNNING


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/control/reconciler.py", "jobs/control/watcher.py"))
def test_a_watcher_dies_at_any_point_and_the_next_one_watches_and_tidies(testbed, visitors, gate):
    visit = _running(testbed, visitors)
    visitors.die_at(*both("kube.watch", "watcher.ring"), do="watch")
    visitors.die_at(*both("watcher.rows"), do="write")
    for point in both("kube.list"):
        gate.refuse(422, verb="GET", kind="pods", times=1)  # the first watch, as by a server without streaming lists
        visitors.die_at(point, do="look", cluster="gated")
    services.cancel(job=testbed.jobs["small"], by=testbed.user)
    assert not visitors.live("visit", **visit, phases=[Phase.CANCELLED])
    assert len(testbed.everything("services")) == 1
    visitors.die_at(*both("kube.tidy"), do="tidy", ahead=7200.0)
    assert not visitors.live("tidy", ahead=7200.0)
    assert testbed.everything("services") == []
