"""Network access to an attempt's pods: one NetworkPolicy per attempt, created before the pods, removed with their owner."""

from typing import Any

import pytest

from common.errors import InvalidInput
from jobs.clusters.kubernetes.build import options
from jobs.core.plan import Plan
from tests.cluster.conftest import NamespaceFixture, end, launch, plan, run_all
from tests.support.patience import until

KIND = "networkpolicies"
GIVEN = {"NAMESPACE": "x", "IMAGE": "x:1", "CONTROL_URL": "https://muster.example"}


def policies(place: NamespaceFixture) -> list[dict[str, Any]]:
    path = f"/apis/networking.k8s.io/v1/namespaces/{place.namespace}/{KIND}"
    return list(place.admin.get(path).json()["items"])


def test_an_attempt_gets_one_policy_that_is_removed_with_its_owner(place):
    cluster = place.cluster(NETWORK_POLICY=True, EGRESS=["10.0.0.0/8"])
    assert not cluster.apply(plan())
    run_all(cluster)
    (made,) = policies(place)
    chosen = made["spec"]["podSelector"]["matchLabels"]
    assert all(chosen.items() <= pod["metadata"]["labels"].items() for pod in place.pods().values())
    launch(cluster, plan())  # as another process does that continues the launch
    assert len(policies(place)) == 1
    end(cluster)
    until(lambda: not policies(place))


def test_without_the_option_no_policy_is_created(place, cluster):
    run_all(cluster)
    assert policies(place) == []


def test_an_account_without_the_permission_launches_and_reports_it(place):
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/roles/muster"
    there = place.admin.get(role).json()
    there["rules"] = [rule for rule in there["rules"] if KIND not in rule["resources"]]
    assert place.admin.put(role, json=there).status_code == 200
    cluster = place.cluster(NETWORK_POLICY=True)

    def said() -> str:
        return cluster.apply(asked)

    asked: Plan = plan()
    assert "may not create NetworkPolicies" in until(said)
    run_all(cluster)
    assert policies(place) == []


@pytest.mark.parametrize("networks", [["10.0.0.0/8", "everywhere"], [4], ["10.0.0.1/8"]])
def test_networks_are_parsed_strictly(networks):
    with pytest.raises(InvalidInput, match=r"OPTIONS.EGRESS.*must be a list of networks"):
        options.read({**GIVEN, "EGRESS": networks})


def test_a_plan_that_is_isolated_has_a_policy_without_the_option_and_reaches_what_its_queue_opens(place, cluster):
    launch(cluster, plan(is_isolated=True, egress=("internet", "10.20.0.0/16")))
    (made,) = policies(place)
    blocks = [one["ipBlock"] for rule in made["spec"]["egress"] for one in rule.get("to", []) if "ipBlock" in one]
    assert [one["cidr"] for one in blocks] == ["0.0.0.0/0", "::/0", "10.20.0.0/16"]
    assert "169.254.0.0/16" in blocks[0]["except"]
