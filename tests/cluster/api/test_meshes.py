"""Roles whose pods an operator makes: a MonarchMesh in the shape of the schema that the cluster has."""

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from common.errors import Refused, Unreachable
from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.clusters.kubernetes.build import manifests
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Plan
from tests.cluster.conftest import NamespaceFixture, end, expected, launch, plan, states
from tests.support.monarch_operator import NEW, OLD, Operator, defined
from tests.support.patience import until

MESHES = "/apis/monarch.pytorch.org/v1alpha1/namespaces/{}/monarchmeshes"
RELEASES = (OLD, NEW)


@pytest.fixture
def defined_as(place: NamespaceFixture, request: pytest.FixtureRequest) -> Iterator[str]:
    with defined(place.admin, request.param):
        yield request.param


@pytest.fixture
def release(place: NamespaceFixture, defined_as: str) -> Iterator[str]:
    with Operator(place.admin, place.namespace, defined_as):
        yield defined_as


def a_mesh(**changes) -> Plan:
    """A plan whose two workers are a mesh of this name, and a controller, whose pod is Muster's."""
    given = plan(**changes)
    (worker,) = given.roles
    worker = replace(worker, operator="MonarchMesh", env={"MONARCH_PORT": "26600"})
    controller = replace(worker, name="controller", replicas=1, operator="")
    return replace(given, roles=(worker, controller), secrets={**given.secrets, "controller-0": "token"})


def meshes(place: NamespaceFixture) -> httpx.Response:
    return place.admin.get(MESHES.format(place.namespace))


def what_is_there(place: NamespaceFixture, cluster: KubernetesCluster) -> str:
    """What a failure says: replicas as they are seen, and the objects as the API server has them."""
    seen = [
        (one.index, one.state.value, one.reason) for one in cluster.observe(AttemptRef("7-abc", 2), expected()).replicas
    ]
    pods = {
        name: (
            pod["metadata"]["uid"],
            pod["metadata"].get("deletionTimestamp"),
            pod["metadata"]["labels"],
            pod["status"],
        )
        for name, pod in place.pods().items()
    }
    sets = place.admin.get(f"/apis/apps/v1/namespaces/{place.namespace}/statefulsets").json()["items"]
    return f"{seen}\n{pods}\n{sets}\n{meshes(place).json()['items']}"


@pytest.mark.parametrize("defined_as", RELEASES, indirect=True)
def test_an_operator_makes_a_roles_pods_and_they_go_with_the_attempt(place, cluster, release):
    launch(cluster, a_mesh())
    assert sorted(place.pods()) == ["7-abc-1-controller-0", "worker-0", "worker-1"]
    until(lambda: set(states(cluster)) == {"running"})
    pod = place.pods()["worker-1"]
    labels = {name: value for name, value in pod["metadata"]["labels"].items() if name.startswith("muster.dev/")}
    owner = place.admin.get(place.path("services", "m-7-abc-1")).json()["metadata"]["uid"]
    assert labels == {
        "muster.dev/run": "7-abc", "muster.dev/attempt": "1", "muster.dev/role": "worker", "muster.dev/owner": owner,
    }  # fmt: skip
    launch(cluster, a_mesh())  # as after a crash: there already
    end(cluster)
    until(lambda: not place.pods() and not meshes(place).json()["items"])


@pytest.mark.full
@pytest.mark.parametrize("defined_as", RELEASES, indirect=True)
def test_each_pod_reads_its_own_number_and_token(place, cluster, release):
    launch(cluster, a_mesh())
    for index in range(2):
        spec = place.pods()[f"worker-{index}"]["spec"]
        env = {one["name"]: one for one in spec["containers"][0]["env"]}
        assert (
            env["MUSTER_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"]
            == "metadata.labels['apps.kubernetes.io/pod-index']"
        )
        assert env["MUSTER_HOST"]["value"] == f"$(MUSTER_POD).worker-svc.{place.namespace}.svc"
        told = next(one["secret"] for one in spec["volumes"] if one["name"] == "told")
        assert [one["path"] for one in told["items"]] == ["role.json", "token-0", "token-1"]
    end(cluster)


@pytest.mark.full
@pytest.mark.parametrize("defined_as", RELEASES, indirect=True)
def test_the_next_attempt_has_a_mesh_of_its_own(place, cluster, release):
    launch(cluster, a_mesh())
    first = place.pods()["worker-0"]["metadata"]["uid"]
    end(cluster)
    launch(cluster, a_mesh(attempt=2))
    until(lambda: set(states(cluster, attempt=2)) == {"running"}, lambda: what_is_there(place, cluster))
    assert place.pods()["worker-0"]["metadata"]["uid"] != first
    end(cluster, attempt=2)


@pytest.mark.full
@pytest.mark.parametrize("defined_as", [NEW], indirect=True)
def test_a_mesh_of_somebody_else_is_left_alone(place, cluster, release):
    theirs = {"containers": [{"name": "worker", "image": "x:1"}]}
    body = {
        "apiVersion": "monarch.pytorch.org/v1alpha1", "kind": "MonarchMesh", "metadata": {"name": "worker"},
        "spec": {"replicas": 1, "podTemplate": {"spec": theirs}},
    }  # fmt: skip
    assert place.admin.post(MESHES.format(place.namespace), json=body).status_code == 201
    with pytest.raises(
        Refused, match="MonarchMesh worker exists and is not Muster's; delete it, or give the job another mesh_name"
    ):
        cluster.apply(a_mesh())
    end(cluster)
    assert [one["metadata"]["name"] for one in meshes(place).json()["items"]] == ["worker"]


@pytest.mark.parametrize("defined_as", [NEW], indirect=True)
def test_a_mesh_without_an_operator_says_what_it_waits_for(place, cluster, defined_as):
    with pytest.raises(
        Unreachable, match="MonarchMesh worker does not have all its pods yet: is Monarch's operator running"
    ):
        cluster.apply(a_mesh())
    end(cluster)
    until(lambda: not meshes(place).json()["items"])


def test_a_cluster_without_the_definition_refuses_before_anything_is_made(place, cluster):
    with pytest.raises(
        Refused, match="this cluster has no MonarchMesh; install Monarch's operator, or set mesh_launcher=pods"
    ):
        cluster.apply(a_mesh())
    assert place.admin.get(place.path("services")).json()["items"] == []


@pytest.mark.parametrize("defined_as", [OLD], indirect=True)
def test_pods_that_no_policy_could_select_are_refused(place, defined_as):
    with pytest.raises(Refused, match="NETWORK_POLICY would leave them open"):
        place.cluster(NETWORK_POLICY=True).apply(a_mesh())
    assert place.admin.get(place.path("services")).json()["items"] == []


@pytest.mark.full
@pytest.mark.parametrize("defined_as", [NEW], indirect=True)
def test_a_pod_that_was_replaced_behind_our_back_counts_as_lost(place, cluster, release):
    launch(cluster, a_mesh())
    until(lambda: set(states(cluster)) == {"running"})
    place.remove("pods", "worker-1")
    until(lambda: states(cluster) == ["running", "lost"])
    end(cluster)


def test_replicas_that_differ_in_more_than_their_number_are_refused(cluster):
    given = replace(plan(), roles=(replace(plan().roles[0], operator="MonarchMesh"),))
    with pytest.raises(Refused, match="one template for all its pods, but NUMBER of worker differs"):
        manifests.mesh(given, given.roles[0], site=cluster.site, owner="u", agent="a", takes_template=True)
