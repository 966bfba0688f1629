"""A cluster that is looked at as Muster's own account: what it lacks is named, in few requests, and nothing is changed."""

from rig.world import let_see_nodes
from tests.cluster.conftest import NamespaceFixture
from tests.support.monarch_operator import NEW, defined
from tests.support.patience import until

MOST_REQUESTS = 20


def told(found) -> dict[str, list[tuple[str, str]]]:
    told: dict[str, list[tuple[str, str]]] = {}
    for one in found:
        told.setdefault(one.about, []).append((one.state, one.words))
    return told


def counted(cluster, monkeypatch) -> list[str]:
    """Return the list to which each request of this cluster's is added."""
    asked, call = [], cluster.api.call

    async def noted(verb, path, **more):
        asked.append(f"{verb} {path}")
        return await call(verb, path, **more)

    monkeypatch.setattr(cluster.api, "call", noted)
    return asked


def test_an_account_with_its_file_has_all_that_jobs_need(place: NamespaceFixture, monkeypatch):
    cluster = place.cluster()
    asked = counted(cluster, monkeypatch)
    found = told(cluster.inspect())
    assert found["version"][0][0] == "ok"
    assert [state for state, _ in found["rights"]] == ["note", "note"], "without deploy/nodes.yaml"
    assert "nodes" not in found and found["storage"] == [("note", "storage classes cannot be read")]
    assert len(asked) <= MOST_REQUESTS and not [one for one in asked if one.startswith("POST api/")]
    let_see_nodes(place.admin, place.namespace)
    place.add_node(gpus=8)
    found = told(place.cluster().inspect())
    assert found["rights"] == [("ok", "the account has every right that Muster uses")]
    assert "nvidia.com/gpu" in found["nodes"][0][1]


def test_what_an_older_file_did_not_grant_is_named(place: NamespaceFixture):
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/roles/muster"
    role = place.admin.get(path).json()
    role["rules"] = [one for one in role["rules"] if "persistentvolumeclaims" not in one["resources"]]
    assert place.admin.put(path, json=role).status_code == 200
    wrong = [one for one in place.cluster().inspect() if one.state == "wrong"]
    assert [one.words for one in wrong] == [
        f"the account may not create, get, patch, delete persistentvolumeclaims in namespace {place.namespace}: "
        "volumes of teams cannot be made, grown and deleted"
    ]
    assert wrong[0].remedy == "kubectl apply -f deploy/account.yaml"
    assert wrong[0].who == "an administrator of the cluster"


def test_an_operator_is_told_with_its_kinds_within_the_bound(place: NamespaceFixture, monkeypatch):
    with defined(place.admin, NEW):
        cluster = place.cluster()
        until(lambda: any("MonarchMesh" in words for _, words in told(cluster.inspect()).get("operators", [])))
        asked = counted(cluster, monkeypatch)
        found = told(cluster.inspect())
        assert ("ok", "Monarch's operator (monarch.pytorch.org: v1alpha1): MonarchMesh") in found["operators"]
        assert len(asked) <= MOST_REQUESTS and "GET apis/monarch.pytorch.org/v1alpha1" in asked
