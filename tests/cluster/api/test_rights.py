"""The account has every right that Muster uses, and no other: deploy/account.yaml beside the API server's audit log."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from common.errors import MusterError
from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.clusters.kubernetes.watch.scopes import MANY_NAMESPACES
from rig.plane import ControlPlane
from rig.world import (
    fill,
    let_make_namespaces,
    let_see_all_pods,
    let_see_nodes,
    let_watch_all,
    objects,
    settle,
    username,
)
from tests.cluster.api import (
    test_claims,
    test_keeper,
    test_kubernetes,
    test_meshes,
    test_nodes,
    test_policies,
    test_probe,
)
from tests.cluster.conftest import REF, NamespaceFixture, need_rig, run_all
from tests.support import audit_log
from tests.support.monarch_operator import NEW, OLD, Operator, defined
from tests.support.patience import until

NAMESPACE = f"rights-{os.getpid()}"
WIDER = ("foreign-pods", "all-namespaces", "team-namespaces")
NOT_REQUESTS = {("rbac.authorization.k8s.io", "clusterroles", "bind")}  # asked about with the creation of a binding
OF_EVERYBODY = {  # what each account may ask about itself, without a grant (system:basic-user)
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
}
WATCHED = ("pods", "services", "events", "nodes")
USER = username(NAMESPACE)


@pytest.fixture(scope="module")
def place(agent) -> Iterator[NamespaceFixture]:
    """On a control plane of its own, which writes down what the account asks for."""
    need_rig()
    plane = ControlPlane(audits=[USER])
    plane.start()
    try:
        fill(plane, nodes=20)
        kubeconfig = settle(plane, NAMESPACE)
        with plane.client() as admin:
            let_see_nodes(admin, NAMESPACE)
            yield NamespaceFixture(plane, NAMESPACE, kubeconfig, agent, admin)
    finally:
        plane.stop()


def test_the_account_may_do_what_muster_asks_for_and_nothing_else(place):
    """All that Muster does to a cluster, by the stories of other tests."""
    for story in (
        test_policies.test_an_attempt_gets_one_policy_that_is_removed_with_its_owner,
        test_kubernetes.test_tombstones_are_removed_once_no_late_call_can_arrive,
    ):
        story(place)
        forget(place)
    for needs_cluster in (
        test_kubernetes.test_a_foreign_pod_under_our_name_is_not_adopted,
        test_kubernetes.test_a_changed_agent_is_not_run,
        test_kubernetes.test_an_immediate_delete_shortens_the_grace_period_of_ending_pods,
    ):
        needs_cluster(place, place.cluster())
        forget(place)
    test_claims.test_a_claim_is_made_with_the_first_job_bound_grown_and_deleted(place)
    forget(place)
    test_keeper.test_one_that_fails_says_why_at_once(place)
    forget(place)
    test_probe.test_one_that_fails_says_why_at_once(place)
    forget(place)
    test_kubernetes.test_a_large_attempt_keeps_its_names_while_it_ends(place, True)
    forget(place)
    test_nodes.test_a_silent_node_is_named_and_its_pods_are_force_deleted(place, place.add_node(), None)
    forget(place)
    for release in (OLD, NEW):
        with defined(place.admin, release), Operator(place.admin, place.namespace, release):
            test_meshes.test_an_operator_makes_a_roles_pods_and_they_go_with_the_attempt(
                place, place.cluster(), release
            )
            forget(place)
    follow_without_streamed_lists(place)
    cluster = place.cluster()
    run_all(cluster)
    with contextlib.suppress(MusterError):  # no kubelet has this log; it is asked for
        cluster.read_log(REF, ("worker", 0, 0), None, lambda _: True)

    said = [*objects("account", NAMESPACE), *objects("nodes", NAMESPACE)]
    rules = [
        rule for one in said if "rules" in one and "reader" not in one["metadata"]["name"] for rule in one["rules"]
    ]
    asked = audit_log.asked(place.plane.audit_log, user=USER)
    assert not [right for right, codes in asked.items() if 403 in codes], "a right is missing"
    may, used = audit_log.granted(rules), set(asked)
    assert (may - used, used - may) == (set(), set()), "(never used, not granted)"

    forget(place)
    grant_wider_rights(place)
    wide = place.cluster(TEAM_ROLE=f"{NAMESPACE}-team")
    use_wider_rights(place, wide)
    rules += [
        rule
        for file in WIDER
        for one in objects(file, NAMESPACE)
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == f"{NAMESPACE}-{file}"
        for rule in one["rules"]
    ]
    asked = audit_log.asked(place.plane.audit_log, user=USER)
    assert not [right for right, codes in asked.items() if 403 in codes], "a right is missing"
    allowed, used = audit_log.granted(rules), set(asked)
    assert (allowed - used, used - allowed) == (NOT_REQUESTS, OF_EVERYBODY), "(never used, not granted)"


def grant_wider_rights(place: NamespaceFixture) -> None:
    let_see_all_pods(place.admin, NAMESPACE)
    let_watch_all(place.admin, NAMESPACE)
    let_make_namespaces(place.admin, NAMESPACE)


def use_wider_rights(place: NamespaceFixture, cluster: KubernetesCluster) -> None:
    """List foreign pods, make namespaces, and follow them all at once."""
    assert cluster.list_nodes()
    names = [f"{NAMESPACE}-{number}" for number in range(MANY_NAMESPACES)]
    for name in names:
        cluster.make_namespace(name)
    cluster.watch([NAMESPACE, *names])
    until(lambda: len({id(view.scope) for view in cluster.views()}) == 1)


def follow_without_streamed_lists(place: NamespaceFixture) -> None:
    """Servers before Kubernetes 1.32 refuse a watch that begins with a list, so the list is asked for by itself."""
    with place.gate() as gate:
        for kind in WATCHED:
            gate.refuse(422, verb="GET", kind=kind, times=1)
        run_all(place.cluster(gate.kubeconfig(place.kubeconfig)))
        until(lambda: all(gate.seen[f"GET {kind}"] for kind in WATCHED))
        forget(place)


def forget(place: NamespaceFixture) -> None:
    """Close the story's adapters, and remove what it left."""
    for one in place.clusters:
        one.close()
    place.clusters.clear()
    for kind in ("pods", "services", "secrets", "configmaps"):
        place.admin.delete(place.path(kind), params={"gracePeriodSeconds": "0"})
