"""A real API server takes every object that the chart renders, and pods pass its strictest profile."""

from typing import Any

import pytest

from tests.cluster.chart.conftest import EXAMPLES

PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}
# Custom resources, whose definitions this API server does not have.
ELSEWHERE = ("HTTPRoute", "ServiceMonitor", "PrometheusRule")
CLUSTER_WIDE = ("Namespace", "ClusterRole", "ClusterRoleBinding")


def path_of(one: dict[str, Any], namespace: str) -> str:
    group = one["apiVersion"]
    kind = PLURALS.get(one["kind"], one["kind"].lower() + "s")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return f"{root}/{kind}" if one["kind"] in CLUSTER_WIDE else f"{root}/namespaces/{namespace}/{kind}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_api_server_takes_every_object(render, place, example):
    for one in render(example, namespace=place.namespace):
        if one["kind"] in ELSEWHERE:
            continue
        one["metadata"]["namespace"] = place.namespace  # those of jobs' namespaces are asked for here too
        one["metadata"]["name"] = (
            f"chart-{place.namespace}-{one['metadata']['name']}"  # the rig has some of these names
        )
        if one["kind"] in CLUSTER_WIDE:
            del one["metadata"]["namespace"]
        if one["kind"] == "Pod":
            one["spec"].pop("priorityClassName", None)  # one of the cluster's own, which must exist
        answer = place.admin.post(
            path_of(one, place.namespace), params={"dryRun": "All", "fieldValidation": "Strict"}, json=one
        )
        assert answer.status_code == 201, f"{one['kind']} {one['metadata']['name']}: {answer.text}"


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
