"""Behavior that needs a real API server: ends, reasons, ownership, refusals, and the number of requests."""

import itertools
import threading
import time

import pytest

from common.errors import InvalidInput, Refused, Unreachable
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.clusters.kubernetes.facts.pods import read_pod
from jobs.clusters.kubernetes.teardown import MANY_NAMES
from jobs.core.verdict import ReplicaState
from rig.plane import ControlPlane
from rig.webhook import Webhook
from tests.cluster.conftest import REF, end, expected, plan, pod_name, run_all, states
from tests.support.kube_site import site_of
from tests.support.machine import need
from tests.support.patience import until


def test_ended_pods_are_reported_with_their_exit_codes(place, cluster):
    run_all(cluster)
    place.annotate(pod_name(0), exit_code="0")
    place.annotate(pod_name(1), exit_code="3")
    until(lambda: states(cluster) == ["succeeded", "failed"])
    zero, one = cluster.observe(REF, expected()).replicas
    assert (zero.exit_code, zero.is_alive, one.exit_code, one.is_alive) == (0, False, 3, False)


def test_a_replica_ended_by_a_signal_is_reported_with_the_signal(place, cluster):
    run_all(cluster)
    place.annotate(pod_name(1), exit_code="137")
    until(lambda: states(cluster) == ["running", "failed"])
    assert cluster.observe(REF, expected()).replicas[1].signal == 9


def test_a_manually_deleted_pod_is_absent_and_its_run_is_announced_as_changed(place, cluster):
    run_all(cluster)
    changes = cluster.changes()
    until(lambda: next(changes) == "")
    before = time.time()
    place.remove("pods", pod_name(1))
    until(lambda: next(changes) == "7-abc")
    until(lambda: states(cluster) == ["running", "absent"])
    until(lambda: cluster.observe(REF, expected()).as_of.timestamp() > before)


def test_a_manually_deleted_service_ends_the_attempt_which_can_then_be_closed(place, cluster):
    run_all(cluster)
    place.remove("services", labels.service("7-abc", 1))
    until(lambda: states(cluster) == ["absent", "absent"])
    assert not cluster.observe(REF, expected()).is_sealed
    assert end(cluster).is_sealed


def test_live_pods_of_a_deleted_owner_hold_the_quota(place, cluster):
    run_all(cluster)
    place.annotate(pod_name(0), hang="true")
    place.remove("services", labels.service("7-abc", 1))
    until(lambda: "deletionTimestamp" in place.pods()[pod_name(0)]["metadata"])
    cluster.delete(REF, 3)
    seen = cluster.observe(REF, expected())
    assert seen.replicas[0].is_alive and not seen.is_sealed
    place.annotate(pod_name(0), hang=None)
    assert end(cluster).is_sealed


def test_a_pod_that_ignores_its_deletion_holds_the_quota(place, cluster):
    run_all(cluster)
    place.annotate(pod_name(1), hang="true")
    cluster.delete(REF, 3)
    until(lambda: states(cluster) == ["absent", "running"])
    cluster.delete(REF, 3)
    seen = cluster.observe(REF, expected())
    assert seen.replicas[1].is_alive and not seen.is_sealed
    assert place.admin.get(place.path("services", labels.service("7-abc", 1))).status_code == 200, "names still resolve"
    place.annotate(pod_name(1), hang=None)
    assert end(cluster).is_sealed


def test_an_immediate_delete_shortens_the_grace_period_of_ending_pods(place, cluster):
    """Not to 0, since the server would then forget a pod whose processes still hold their GPUs."""
    run_all(cluster)
    place.annotate(pod_name(1), hang="true")

    def grace() -> int | None:
        return place.pods()[pod_name(1)]["metadata"].get("deletionGracePeriodSeconds")

    cluster.delete(REF, 3600)
    until(lambda: grace() is not None and grace() > 3600)
    cluster.delete(REF, 3600, is_now=True)
    until(lambda: grace() == 1)
    seen = cluster.observe(REF, expected())
    assert seen.replicas[1].is_alive and not seen.is_sealed
    place.annotate(pod_name(1), hang=None)
    assert end(cluster).is_sealed


def test_a_replica_that_completes_during_its_grace_period_has_succeeded(place, cluster):
    run_all(cluster)
    place.annotate(pod_name(0), hang="true")
    cluster.delete(REF, 3)
    place.annotate(pod_name(0), exit_code="0")
    until(lambda: states(cluster)[0] == "succeeded")
    place.annotate(pod_name(0), hang=None)
    seen = end(cluster)
    assert [one.state for one in seen.replicas] == [ReplicaState.SUCCEEDED, ReplicaState.ABSENT]


# -- ownership


def foreign_pod(name: str, said: dict, **meta) -> dict:
    made = manifests.pod(plan(), plan().roles[0], 0, site=site_of(), owner="nobody", agent="none")
    made["metadata"] = {"name": name, "labels": said, **meta}
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    made["spec"]["volumes"] = [
        {**one, "emptyDir": {}} for one in ({"name": v["name"]} for v in made["spec"]["volumes"])
    ]
    return made


def owner_of(place) -> str:
    return place.admin.get(place.path("services", labels.service("7-abc", 1))).json()["metadata"]["uid"]


def test_a_foreign_pod_with_our_labels_is_neither_counted_nor_deleted(place, cluster):
    run_all(cluster)
    said = labels.of_replica("7-abc", 1, "worker", 0, owner=owner_of(place))
    place.make("pods", foreign_pod("stranger", said, annotations={"muster.dev/run": "\u2603" * 9000}))
    until(lambda: "stranger" in {pod.name for pod in cluster.view().drawn(REF).pods})
    assert states(cluster) == ["running", "running"]
    seen = end(cluster)
    assert not any(one.is_alive for one in seen.replicas)
    assert list(place.pods()) == ["stranger"]
    assert "deletionTimestamp" not in place.pods()["stranger"]["metadata"]


def test_a_foreign_pod_under_our_name_is_not_adopted(place, cluster):
    said = labels.of_replica("7-abc", 1, "worker", 0, owner="forged")
    place.make("pods", foreign_pod(pod_name(0), said))
    with pytest.raises(Refused, match=f"pod {pod_name(0)} exists and is not Muster's"):
        cluster.apply(plan())
    until(lambda: states(cluster)[1] == "running")
    assert states(cluster)[0] == "absent"


def test_a_foreign_pod_with_our_name_and_labels_does_not_count_as_created(place, cluster):
    """The launch is taken over, and reads the pods that the previous one created."""
    run_all(cluster, 1)
    said = labels.of_replica("7-abc", 1, "worker", 1, owner=owner_of(place))
    place.make("pods", foreign_pod(pod_name(1), said))
    with pytest.raises(Refused, match=f"pod {pod_name(1)} exists and is not Muster's"):
        place.cluster().apply(plan())


def test_a_foreign_service_under_our_name_is_not_adopted(place, cluster):
    place.make("services", {"metadata": {"name": labels.service("7-abc", 1)}, "spec": {"clusterIP": "None"}})
    with pytest.raises(Refused, match="is not Muster's"):
        cluster.apply(plan())
    assert place.pods() == {}


def test_a_changed_agent_is_not_run(place, cluster):
    real = manifests.agent_config(place.agent.read_bytes(), b"another")
    run_all(cluster)
    name = cluster.launchers[place.namespace].agent["metadata"]["name"]
    place.remove("configmaps", name)
    place.make("configmaps", {**real, "metadata": {"name": name}})
    with pytest.raises(Refused, match="with different content"):
        place.cluster().apply(plan(run="8-abc"))


def test_malformed_objects_with_our_labels_do_not_stop_the_watch(place, cluster):
    run_all(cluster)
    for number, said in enumerate(
        [
            {labels.RUN: "x"},
            {labels.RUN: "7-abc", labels.ATTEMPT: "99999999"},
            {labels.RUN: "7-abc", labels.ATTEMPT: "1"},
        ]
    ):
        place.make("pods", foreign_pod(f"absurd-{number}", said))
    place.annotate(pod_name(0), exit_code="0")
    until(lambda: states(cluster) == ["succeeded", "running"])


# -- permanent failures, with the server's message


def test_a_quota_that_has_less_than_one_pod_takes_is_the_reason_of_the_refusal(place, cluster):
    place.make("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})
    until(lambda: place.admin.get(place.path("resourcequotas", "few")).json().get("status", {}).get("hard"))
    with pytest.raises(Refused, match="exceeded quota: few"):
        cluster.apply(plan(5))
    end(cluster, 5)
    assert place.pods() == {}


def test_the_message_of_a_refusing_webhook_is_the_reason(place, cluster):
    runs = itertools.count(100)
    need(isinstance(place.plane, ControlPlane), "only the rig's own API server reaches a webhook of the test")
    with Webhook(place.plane, place.namespace, words="images come\x00from our own registry only" + "!" * 5000):
        with pytest.raises(Refused) as caught:
            until(lambda: cluster.apply(plan(run=f"{next(runs)}-abc")))  # it takes a moment until the webhook is active
    said = str(caught.value)
    assert "admission webhook" in said and "images come from our own registry only!!!" in said
    assert len(said) < 1200


def test_a_missing_namespace_is_named(place):
    cluster = place.cluster(NAMESPACE="nowhere")
    with pytest.raises(Refused, match="nowhere"):
        cluster.apply(plan())
    with pytest.raises(Unreachable, match="nowhere"):
        cluster.observe(REF, expected())


def test_a_pod_that_the_server_rejects_as_invalid_is_refused_with_its_message(place):
    with pytest.raises(Refused, match="cannot be handled as a Pod: quantities"):
        place.cluster(REQUESTS={"cpu": "plenty"}).apply(plan())


def reason_with(cluster, words: str) -> str:
    """Wait for a reason with these words; another may come first, such as a node that is not ready yet."""

    def reason() -> str:
        said = cluster.observe(REF, expected(1)).replicas[0].reason
        return said if words in said else ""

    return until(reason)


def test_resources_that_no_node_has_are_the_reason_of_a_pending_replica(place, cluster):
    cluster.apply(plan(1, processes=9, resource="gpu"))
    reason = reason_with(cluster, "without enough free nvidia.com/gpu")
    assert reason.startswith("no place for it: 0 of ")
    assert states(cluster, 1) == ["pending"]


def test_a_missing_image_is_the_reason_of_a_pending_replica(place):
    cluster = place.cluster(IMAGE="rig/no-image")
    cluster.apply(plan(1))
    assert reason_with(cluster, "the image rig/no-image cannot be pulled (ErrImagePull): pull access denied")


def test_a_missing_claim_is_the_reason_of_a_pending_replica(place):
    cluster = place.cluster(JOB_CLAIM="scratch")
    cluster.apply(plan(1))
    assert reason_with(cluster, 'persistentvolumeclaim "scratch" not found')


def test_a_volume_without_a_claim_creates_nothing(place, cluster):
    with pytest.raises(Refused, match="volume data"):
        cluster.apply(plan(volumes={"data": ""}))
    assert place.admin.get(place.path("services")).json()["items"] == []


@pytest.mark.parametrize("text", ["", "{", '{"kind": "Config", "clusters": [], "contexts": [], "users": []}'])
def test_a_kubeconfig_without_a_server_is_reported(place, tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(Unreachable, match=r"kubeconfig .* cannot be used"):
        place.cluster(path).observe(REF, expected())


def test_rejected_credentials_are_reported(place, tmp_path):
    path = tmp_path / "kubeconfig"
    text = place.kubeconfig.read_text()
    path.write_text(text.replace('"token": "', '"token": "x'))
    with pytest.raises(Unreachable, match="credentials"):
        place.cluster(path).observe(REF, expected())


def test_renewed_credentials_are_read_from_the_file(place, tmp_path):
    path = tmp_path / "kubeconfig"
    text = place.kubeconfig.read_text()
    path.write_text(text)
    cluster = place.cluster(path)
    run_all(cluster)
    path.write_text(text.replace('"token": "', '"token": "x'))
    kept = cluster.api.session
    kept.configuration.api_key["BearerToken"] = "Bearer expired"  # as if time had passed
    path.write_text(text)
    cluster.delete(REF, 3)
    assert cluster.api.session is not kept


def test_wrong_options_are_refused_before_any_request():
    from jobs.clusters.kubernetes.adapter import KubernetesCluster

    with pytest.raises(InvalidInput, match=r"OPTIONS\.NAMESPACE"):
        KubernetesCluster(IMAGE="x", CONTROL_URL="http://x")


# -- number of requests


def test_a_launch_and_an_end_cost_few_requests(place):
    with place.gate() as gate:
        cluster = place.cluster(gate.kubeconfig(place.kubeconfig))
        until(lambda: cluster.view().known(REF))
        gate.seen.clear()
        cluster.apply(plan(40))
        until(lambda: set(states(cluster, 40)) == {"running"})
        assert gate.seen["POST pods"] == 40 and gate.seen["GET pods"] == 0
        assert sum(gate.seen[f"POST {kind}"] for kind in ("services", "secrets", "configmaps")) == 3
        gate.seen.clear()
        end(cluster, 40)
        assert gate.seen["DELETE pods"] == 1 and gate.seen["DELETE services"] == 1 and gate.seen["POST services"] == 1
        assert 1 <= gate.seen["GET pods"] <= 2, "looked for once more when closed, or once before where news came late"
        assert gate.seen["GET services"] == 0
        assert gate.seen["PATCH services"] == 0, "few names are not worth a request"
        place.clusters.remove(cluster)
        cluster.close()


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_large_attempt_keeps_its_names_while_it_ends(place, is_allowed):
    count = MANY_NAMES + 1
    with place.gate() as gate:
        cluster = place.cluster(gate.kubeconfig(place.kubeconfig))
        run_all(cluster, count)
        if not is_allowed:  # an account created before this permission was required
            gate.refuse(403, verb="PATCH", kind="services", times=1)
        gate.seen.clear()
        cluster.delete(REF, 3)
        service = place.admin.get(place.path("services", "m-7-abc-1")).json()
        assert ("selector" in service["spec"]) is not is_allowed
        end(cluster, count)
        assert (gate.seen["PATCH services"], gate.seen["DELETE pods"], place.pods()) == (1, 1, {})
        place.clusters.remove(cluster)
        cluster.close()


def test_each_replica_names_its_node(place, cluster):
    run_all(cluster)
    where = [place.pods()[pod_name(index)]["spec"]["nodeName"] for index in range(2)]
    assert [one.node for one in cluster.observe(REF, expected()).replicas] == where


def test_observing_a_running_attempt_sends_no_requests(place):
    with place.gate() as gate:
        cluster = place.cluster(gate.kubeconfig(place.kubeconfig))
        run_all(cluster)
        until(lambda: cluster.view().known(REF))
        gate.seen.clear()
        for _ in range(200):
            assert states(cluster) == ["running", "running"]
        assert gate.seen["GET pods"] == gate.seen["GET services"] == 0
        place.clusters.remove(cluster)
        cluster.close()


def test_tombstones_are_removed_once_no_late_call_can_arrive(place):
    now = [time.time()]
    from jobs.clusters.kubernetes.adapter import KubernetesCluster

    options = {
        "KUBECONFIG": str(place.kubeconfig),
        "NAMESPACE": place.namespace,
        "IMAGE": "x",
        "CONTROL_URL": "http://x",
    }
    cluster = KubernetesCluster(agent=place.agent, clock=lambda: now[0], **options)
    place.clusters.append(cluster)
    end(cluster)
    until(lambda: cluster.view().drawn(REF).owner)
    assert cluster.tidy() == 0
    now[0] += 7200
    assert cluster.tidy() == 1
    assert place.admin.get(place.path("services")).json()["items"] == []


# -- from any process, at any moment


def test_another_process_observes_and_ends_an_attempt(place, cluster):
    run_all(cluster)
    other = place.cluster()
    assert states(other) == ["running", "running"]
    assert end(other).is_sealed
    until(lambda: states(cluster) == ["absent", "absent"])


def test_concurrent_launches_create_one_attempt(place):
    clusters = [place.cluster() for _ in range(3)]
    failures = []

    def launch(one):
        try:
            one.apply(plan(30))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=launch, args=(one,)) for one in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(place.pods()) == sorted(pod_name(index) for index in range(30))
    assert {read_pod(one).owner for one in place.pods().values()} == {owner_of(place)}
