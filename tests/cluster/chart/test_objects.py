"""A real API server takes every object that the chart renders, and pods pass its strictest profile."""

from typing import Any

import httpx
import pytest
import yaml

from rig import definitions
from tests.cluster.chart.conftest import EXAMPLES
from tests.support.machine import need
from tests.support.patience import until

PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding")


def path_of(one: dict[str, Any], namespace: str) -> str:
    group = one["apiVersion"]
    kind = PLURALS.get(one["kind"], one["kind"].lower() + "s")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return f"{root}/{kind}" if one["kind"] in CLUSTER_WIDE else f"{root}/namespaces/{namespace}/{kind}"


@pytest.fixture(scope="module")
def defined(plane) -> set[str]:
    """Custom resources of the Gateway API and the Prometheus operator, as their projects define them."""
    need(not definitions.why_not(), definitions.why_not())
    with plane.client() as admin:
        names = [define(admin, yaml.safe_load(path.read_text())) for path in definitions.fetch()]
        for name in names:
            until(lambda name=name: is_established(admin.get(f"{DEFINITIONS}/{name}").json()))
    return set(names)


def define(admin: httpx.Client, definition: dict[str, Any]) -> str:
    answer = admin.post(DEFINITIONS, json=definition)
    assert answer.status_code in (201, 409), answer.text
    return str(definition["metadata"]["name"])


def is_established(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []  # a new definition's are null
    said = {one["type"]: one["status"] for one in conditions}
    return said.get("Established") == "True"


@pytest.mark.parametrize("words", [(), ("--is-upgrade",)], ids=["install", "upgrade"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_api_server_takes_every_object(render, place, defined, example, words):
    for one in render(example, *words, namespace=place.namespace):
        one["metadata"]["namespace"] = place.namespace  # those of jobs' namespaces are asked for here too
        one["metadata"]["name"] = (
            f"chart-{place.namespace}-{one['metadata']['name']}"  # the rig has some of these names
        )
        if one["kind"] in CLUSTER_WIDE:
            del one["metadata"]["namespace"]
        if one["kind"] == "Pod":
            one["spec"].pop("priorityClassName", None)  # one of the cluster's own, which must exist
        # A definition is established before its resources are served.
        answer = until(lambda one=one: taken(place.admin.post(path_of(one, place.namespace), params=STRICT, json=one)))
        assert answer.status_code == 201, f"{one['kind']} {one['metadata']['name']}: {answer.text}"


def taken(answer: httpx.Response) -> httpx.Response | None:
    return None if answer.text.strip() == "404 page not found" else answer


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_pod_passes_the_profile_restricted(render, place, example):
    """Namespaces of the rig enforce it (deploy/account.yaml); a pod that breaks a rule of it is refused with its name."""
    names = []
    for one in render(example, namespace=place.namespace):
        template = one if one["kind"] == "Pod" else one.get("spec", {}).get("template")
        if not template or "containers" not in template.get("spec", {}):
            continue
        names.append(one["metadata"]["name"])
        spec = {**template["spec"], "serviceAccountName": "default"}
        spec.pop("priorityClassName", None)
        claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])]
        spec["volumes"] = [*spec["volumes"], *({"name": name, "emptyDir": {}} for name in claims)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": one["metadata"]["name"]}, "spec": spec}
        answer = place.admin.post(place.path("pods"), params={"dryRun": "All"}, json=pod)
        assert answer.status_code == 201 and "warning" not in answer.headers, (
            f"{pod['metadata']['name']}: {answer.text}"
        )
    assert len(names) >= 6
