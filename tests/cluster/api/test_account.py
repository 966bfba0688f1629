"""Where Muster's account is, beside the namespace of jobs: deploy/account.yaml on an API server, at first and at an upgrade."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rig.world import account_namespace, apply, await_right, is_allowed, objects, settle, username
from tests.cluster.api import account_before
from tests.cluster.conftest import NamespaceFixture, end, run_all, states
from tests.support.audit_log import granted
from tests.support.patience import until

# What every user of a cluster may ask about itself (`system:basic-user`).
ABOUT_ITSELF = {
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}  # fmt: skip


def client(place: NamespaceFixture, kubeconfig: Path) -> httpx.Client:
    """Return a client of the API server with the kubeconfig's token."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=place.plane.url, verify=place.plane.tls(), headers=headers, timeout=30)


@pytest.fixture
def account(place: NamespaceFixture) -> Iterator[httpx.Client]:
    with client(place, place.kubeconfig) as opened:
        yield opened


def rights(account: httpx.Client, namespace: str) -> set[tuple[str, str, str]]:
    """What the server says that the client may do to objects of the namespace."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    answer = account.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json=body)
    assert answer.status_code == 201, answer.text
    status = answer.json()["status"]
    assert not status["incomplete"]
    return granted(status["resourceRules"])


def role(namespace: str) -> set[tuple[str, str, str]]:
    (rules,) = [
        one["rules"] for one in objects("account", namespace)
        if (one["kind"], one["metadata"]["name"]) == ("Role", "muster")
    ]  # fmt: skip
    return granted(rules)


def test_the_account_has_the_rights_of_its_role_in_the_namespace_of_jobs_and_none_where_it_is(place, account):
    assert rights(account, place.namespace) == role(place.namespace) | ABOUT_ITSELF
    home = account_namespace(place.namespace)
    for other in (home, "default", "kube-system"):
        assert rights(account, other) == ABOUT_ITSELF, other
    asked = [("GET", "secrets"), ("POST", "pods"), ("GET", "pods"), ("POST", "serviceaccounts/muster/token")]
    answers = {
        (verb, path): account.request(verb, f"/api/v1/namespaces/{home}/{path}", json={} if verb == "POST" else None)
        for verb, path in asked
    }
    assert {one: answer.status_code for one, answer in answers.items()} == dict.fromkeys(asked, 403)


def test_one_account_may_work_in_another_namespace_that_the_same_file_makes(place, account):
    """`replace muster-jobs throughout`, and nothing else: the kubeconfig stays as it is."""
    other, user = f"{place.namespace}-other", username(place.namespace)
    assert not is_allowed(place.admin, user, namespace=other, resource="pods", verb="create")
    for thing in objects("account", other, system=account_namespace(place.namespace)):
        apply(place.admin, thing)
    await_right(place.admin, user, namespace=other, resource="pods", verb="create")
    assert rights(account, other) == rights(account, place.namespace)
    place.admin.delete(f"/api/v1/namespaces/{other}")


@pytest.fixture
def before(place: NamespaceFixture) -> Iterator[NamespaceFixture]:
    """A namespace with the account of the release before."""
    namespace = f"{place.namespace}-before"
    kubeconfig = account_before.install(place.plane, place.admin, namespace)
    found = NamespaceFixture(place.plane, namespace, kubeconfig, place.agent, place.admin)
    yield found
    for one in found.clusters:
        one.close()
    for name in (namespace, account_namespace(namespace)):
        place.admin.delete(f"/api/v1/namespaces/{name}")


def test_a_kubeconfig_of_the_release_before_goes_on_working_after_the_upgrade_until_its_account_is_dropped(before):
    assert pod_with_account(before).status_code == 201, "what the account's place allowed"
    before.remove("pods", "thief")
    cluster = before.cluster()
    run_all(cluster)

    new = before.cluster(settle(before.plane, before.namespace))  # applies the file, and issues a token of its account
    assert rights_of(before, account_before.username(before.namespace)) == role(before.namespace)
    assert states(cluster) == states(new) == ["running", "running"]
    end(cluster)
    run_all(cluster, attempt=2)

    drop(before)
    until(lambda: 'serviceaccount "muster" not found' in pod_with_account(before).json().get("message", ""))
    with client(before, before.kubeconfig) as earlier:
        until(lambda: earlier.get(before.path("pods")).status_code in (401, 403))
    end(new, attempt=2)
    run_all(new, attempt=3)


def rights_of(place: NamespaceFixture, user: str) -> set[tuple[str, str, str]]:
    """Those rights of the role that the user has."""

    def has(group: str, resource: str, verb: str) -> bool:
        kind, _, part = resource.partition("/")
        asked = {"group": group, "resource": kind, "subresource": part, "verb": verb, "namespace": place.namespace}
        return is_allowed(place.admin, user, **asked)

    return {right for right in role(place.namespace) if has(*right)}


def drop(place: NamespaceFixture) -> None:
    """Do what deploy/account.yaml says about the earlier account: remove its object and its subject, apply, delete it."""
    for thing in objects("account", place.namespace):
        if is_earlier(thing["kind"], thing["metadata"], place.namespace):
            continue
        if "subjects" in thing:
            thing["subjects"] = [one for one in thing["subjects"] if not is_earlier(one["kind"], one, place.namespace)]
        apply(place.admin, thing)
    place.admin.delete(f"/api/v1/namespaces/{place.namespace}/serviceaccounts/muster").raise_for_status()


def is_earlier(kind: str, named: dict[str, Any], namespace: str) -> bool:
    return (kind, named["name"], named.get("namespace")) == ("ServiceAccount", "muster", namespace)


def pod_with_account(place: NamespaceFixture) -> httpx.Response:
    """Create a pod as somebody may who may create pods in the namespace."""
    container = {
        "name": "a", "image": "x:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"serviceAccountName": "muster", "securityContext": security, "containers": [container]}
    return place.admin.post(place.path("pods"), json={"metadata": {"name": "thief"}, "spec": spec})
