"""Nodes that stop responding or are deleted: they are named, and their pods are force-deleted before being replaced."""

import pytest

from jobs.clusters.kubernetes.build import labels
from jobs.clusters.kubernetes.watch.nodes import Nodes, read_node
from jobs.core.lifecycle import Phase
from rig.world import let_see_nodes
from tests.cluster.api.test_life import Life
from tests.cluster.conftest import REF, end, expected, pod_name, run_all, states
from tests.support.builders import Clock
from tests.support.patience import until

STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
LABEL, UNREACHABLE = "kubernetes.io/hostname", "node.kubernetes.io/unreachable"


def silence(place, node: str, *, status: str = "Unknown") -> None:
    """Set the status that controllers write for an unresponsive node; rig/dead keeps KWOK from resetting it."""
    note = {"metadata": {"annotations": {"rig/dead": "true"}}}
    ready = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}  # fmt: skip
    for path, body in (("", note), ("/status", {"status": {"conditions": [ready]}})):
        answer = place.admin.patch(f"/api/v1/nodes/{node}{path}", headers=STRATEGIC, json=body)
        assert answer.status_code == 200, answer.text
    if status != "True":  # the controllers add a taint, so that no new pod is placed there
        until(lambda: any(one["key"] == UNREACHABLE for one in _taints(place, node)))


def _taints(place, node: str) -> list[dict[str, str]]:
    return place.admin.get(f"/api/v1/nodes/{node}").json()["spec"].get("taints", [])


@pytest.fixture
def node(place):
    """A node that the test may silence; its pods then do not end, as without a kubelet."""
    return place.add_node()


@pytest.fixture
def seeing(place):
    let_see_nodes(place.admin, place.namespace)
    yield
    for kind in ("clusterrolebindings", "clusterroles"):
        place.admin.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{place.namespace}-nodes")


def run_on(place, node: str, *, lost_seconds: int = 1):
    cluster = place.cluster(NODE_SELECTOR={LABEL: node}, NODE_LOST_SECONDS=lost_seconds)
    run_all(cluster)
    for index in range(2):
        place.annotate(pod_name(index), hang="true")
    return cluster


def test_a_silent_node_is_named_and_its_pods_are_force_deleted(place, node, seeing):
    cluster = run_on(place, node)
    silence(place, node)
    until(lambda: states(cluster) == ["lost", "lost"])
    one = cluster.observe(REF, expected()).replicas[0]
    assert (one.node, one.is_alive) == (node, True), "it may still train there: it keeps its place"
    assert one.reason == f"its node {node} does not answer for more than 1 s: Kubelet stopped posting node status."
    assert set(place.pods()) == {pod_name(0), pod_name(1)}, "nothing is deleted before somebody decided so"
    assert end(cluster).is_sealed
    assert place.pods() == {}


def test_replicas_on_a_deleted_node_are_lost(place, node, seeing):
    cluster = run_on(place, node)
    until(lambda: cluster.nodes.picture.of(node))
    place.admin.delete(f"/api/v1/nodes/{node}")
    until(lambda: "lost" in states(cluster))
    assert cluster.observe(REF, expected()).replicas[0].reason == f"its node {node} is not in the cluster any more"  # fmt: skip
    assert end(cluster).is_sealed


def test_no_pod_is_force_deleted_before_the_node_counts_as_lost(place, node, seeing):
    cluster = run_on(place, node, lost_seconds=3600)
    silence(place, node)
    until(lambda: (found := cluster.nodes.picture.of(node)) and found[0].silence)
    cluster.delete(REF, 3)
    until(lambda: all("deletionTimestamp" in one["metadata"] for one in place.pods().values()))
    cluster.delete(REF, 3)
    seen = cluster.observe(REF, expected())
    assert [one.state for one in seen.replicas] == ["running", "running"] and not seen.is_sealed
    assert place.admin.get(place.path("pods", pod_name(0))).status_code == 200


def test_pods_on_a_recovered_node_are_deleted_gracefully(place, node, seeing):
    """The cache says lost, the API server says ready: an irreversible action follows the server."""
    with place.gate() as gate:
        cluster = place.cluster(gate.kubeconfig(place.kubeconfig), NODE_SELECTOR={LABEL: node}, NODE_LOST_SECONDS=1)
        run_all(cluster)
        place.annotate(pod_name(0), hang="true")
        silence(place, node)
        until(lambda: states(cluster) == ["lost", "lost"])
        gate.held.add("nodes")
        silence(place, node, status="True")
        cluster.delete(REF, 3)
        until(lambda: list(place.pods()) == [pod_name(0)])
        assert place.pods()[pod_name(0)]["metadata"]["deletionGracePeriodSeconds"] > 0
        gate.held.clear()
        place.clusters.remove(cluster)
        cluster.close()


def test_without_permission_to_read_nodes_no_node_is_lost(place, node):
    cluster = run_on(place, node)
    silence(place, node)
    changes = cluster.changes()
    for _ in range(5):
        until(lambda: next(changes) == "")
    assert states(cluster) == ["running", "running"]
    assert cluster.nodes.lost([node]) == {}


def test_a_job_on_a_lost_node_restarts_on_another_node(place, node, seeing, people, team):
    from queues.models import Queue

    other = place.add_node()
    queue = Queue.objects.create(name="gpus", team=team, cluster="local", nominal=8, resource="gpu", gpus_per_node=8)
    life = Life(place, queue, people.owner, NODE_LOST_SECONDS=1, NODE_SELECTOR={"rig": place.namespace})
    for one in (node, other):
        answer = place.admin.patch(f"/api/v1/nodes/{one}", headers=STRATEGIC, json={"metadata": {"labels": {"rig": place.namespace}}})  # fmt: skip
        assert answer.status_code == 200
    job = life.submit(nodes=1, nproc_per_node=8, max_retries=1)
    first = place.pods()[life.pod(job, 0)]["spec"]["nodeName"]
    place.annotate(life.pod(job, 0), hang="true")
    waiting = life.submit_only(nodes=1, nproc_per_node=8)
    silence(place, first)
    until(lambda: life.until(job, *Phase).attempt == 2)
    life.until(job, Phase.RUNNING)
    assert place.pods()[life.pod(job, 0)]["spec"]["nodeName"] == ({node, other} - {first}).pop()
    told = [event.message for event in job.events.filter(attempt=1)]
    assert any(f"its node {first} does not answer" in one for one in told)
    waiting.refresh_from_db()
    assert waiting.phase == Phase.QUEUED, "the quota went over to the next attempt"
    assert labels.pod(job.run, 1, "worker", 0) not in place.pods()


def test_an_elastic_job_continues_while_one_of_its_nodes_is_lost(place, node, seeing, people, team):
    """The pod on that node is force-deleted before it is replaced; the other pods are unaffected."""
    from queues.models import Queue

    nodes = {node, place.add_node(), place.add_node()}
    queue = Queue.objects.create(name="gpus", team=team, cluster="local", nominal=16, resource="gpu", gpus_per_node=8)
    life = Life(place, queue, people.owner, NODE_LOST_SECONDS=1, NODE_SELECTOR={"rig": place.namespace})
    for one in nodes:
        label = {"metadata": {"labels": {"rig": place.namespace}}}
        assert place.admin.patch(f"/api/v1/nodes/{one}", headers=STRATEGIC, json=label).status_code == 200
    job = life.submit(nodes=2, min_nodes=1, nproc_per_node=8)
    row = job.replicas.get(index=1)
    until(lambda: life.until(job, *Phase) and job.replicas.filter(index=1, state="running").exists())
    before = place.pods()
    lost = before[row.name]["spec"]["nodeName"]
    place.annotate(row.name, hang="true")
    silence(place, lost)

    def is_back() -> bool:
        life.until(job, *Phase)
        row.refresh_from_db()
        return (row.incarnation, row.state) == (1, "running")

    until(is_back)
    assert (job.phase, job.attempt) == (Phase.RUNNING, 1)
    now = place.pods()
    assert set(now) == {life.pod(job, 0), row.name}, "what was lost is gone, and was gone first"
    assert now[life.pod(job, 0)]["metadata"]["uid"] == before[life.pod(job, 0)]["metadata"]["uid"]
    assert now[row.name]["spec"]["nodeName"] != lost
    assert f"its node {lost} does not answer" in job.events.get(kind="replaced").message


# -- the count of silent seconds


class Seen:
    def __init__(self):
        self.clock = Clock()
        self.nodes = Nodes(lost_seconds=30, fresh_seconds=25, clock=self.clock.seconds)
        self.version = 0

    def tell(self, name: str = "a", *, ready: str = "True", uid: str = "u", seconds: float = 0) -> dict[str, str]:
        """The watch reports this node, time passes, and the cache is confirmed; return the lost nodes."""
        self.version += 1
        fact = read_node({
            "metadata": {"name": name, "uid": uid, "resourceVersion": str(self.version)},
            "status": {"conditions": [{"type": "Ready", "status": ready, "message": "said"}]},
        })  # fmt: skip
        self.nodes.picture.put(fact)
        self.nodes.changed(name)
        self.clock.advance(seconds)
        self.nodes.picture.confirm(self.clock.seconds())
        return self.nodes.lost(["a"])


@pytest.fixture
def seen():
    made = Seen()
    made.tell("other")
    return made


def test_the_time_counts_from_the_first_observed_silence(seen):
    assert seen.tell(ready="Unknown", seconds=29) == {}
    assert seen.tell(ready="Unknown", seconds=2) == {"a": "does not answer for more than 30 s: said"}


def test_an_answer_in_between_restarts_the_count(seen):
    seen.tell(ready="False", seconds=29)
    seen.tell(ready="True")
    assert seen.tell(ready="False", seconds=29) == {}


def test_a_stale_cache_reports_no_lost_node(seen):
    seen.tell(ready="False", seconds=60)
    seen.clock.advance(60)
    assert seen.nodes.lost(["a"]) == {}


def test_if_all_nodes_are_silent_none_is_lost(seen):
    seen.tell("other", ready="Unknown", seconds=5)
    assert seen.tell(ready="Unknown", seconds=60) == {}
    assert seen.tell("other", ready="True") == {"a": "does not answer for more than 30 s: said"}


def test_a_node_that_was_never_seen_is_lost_after_the_same_time(seen):
    seen.tell("other")
    assert seen.nodes.lost(["b"]) == {}
    seen.tell("other", seconds=31)
    assert seen.nodes.lost(["b"]) == {"b": "is not in the cluster any more"}


@pytest.mark.parametrize("thing", [None, {}, {"metadata": {"name": 3, "uid": "u"}}, "x"])
def test_malformed_objects_are_not_read_as_nodes(thing):
    assert read_node(thing) is None


def test_a_node_with_a_malformed_status_is_silent():
    assert read_node({"metadata": {"name": "n", "uid": "u"}, "status": 7}).silence
