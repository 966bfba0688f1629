"""Information that only Events carry: shown as the replica's reason while it is pending, and used for nothing else."""

import pytest
from hypothesis import given, settings

from jobs.clusters.kubernetes.build import labels
from jobs.clusters.kubernetes.facts.events import PodTrouble, explain, read_trouble
from jobs.clusters.kubernetes.facts.pods import AttemptObjects, read_pod
from tests.cluster.conftest import expected, plan, pod_name, states
from tests.support.patience import until
from tests.unit.clusters.kubernetes.test_pods import ABSURD, OWNER, REF, thing, waiting

CLAIMS = {"job": "scratch", "volume-0": "data"}


def event(pod: str, uid: str, reason: str, message: str, **said) -> dict:
    about = {"kind": "Pod", "name": pod, "uid": uid, **said.pop("about", {})}
    meta = {"name": f"{pod}.{abs(hash(message))}", "uid": "e", "resourceVersion": "3"}
    return {"metadata": meta, "involvedObject": about, "reason": reason, "message": message, "type": "Warning", **said}


def read(reason: str, message: str, **said) -> PodTrouble | None:
    return read_trouble(event("7-abc-1-worker-0", "pod", reason, message, **said))


@pytest.mark.parametrize(
    "reason, message, told",
    [
        ("FailedMount", 'MountVolume.SetUp failed for volume "pvc-77" : timed out', 'volume not mounted, one of the claims data, scratch: MountVolume.SetUp failed for volume "pvc-77" : timed out'),
        ("FailedMount", "Unable to attach or mount volumes: unmounted volumes=[volume-0], unattached volumes=[job tmp]: timed out", "volume not mounted, claim data: Unable"),
        ("FailedMount", 'MountVolume.SetUp failed for volume "told" : secret "m-7-abc-1" not found', 'volume not mounted: MountVolume.SetUp failed for volume "told"'),
        ("FailedAttachVolume", 'Multi-Attach error for volume "job" Volume is already used', "volume not mounted, claim scratch: Multi-Attach error"),
        ("FailedCreatePodSandBox", "no addresses left", "its node cannot set it up: no addresses left"),
    ],
)  # fmt: skip
def test_an_event_explains_a_pod_without_a_reason(reason, message, told):
    assert explain("", [read(reason, message)], CLAIMS).startswith(told)


def test_the_pods_own_reason_takes_precedence_over_events():
    assert explain("no place for it: x", [read("FailedMount", "y")], CLAIMS) == "no place for it: x"


def test_the_runtimes_message_is_kept_during_image_pull_backoff():
    (status,) = waiting("ImagePullBackOff", "Back-off pulling image")["containerStatuses"]
    pod = read_pod(thing(phase="Pending", containerStatuses=[status]))
    said = 'Failed to pull image "x:1": unauthorized'
    (seen,) = AttemptObjects(REF, OWNER, (pod,), troubles=(read("Failed", said),)).replicas([("worker", 0)])
    assert seen.reason == f"the image x:1 cannot be pulled (ImagePullBackOff): Back-off pulling image; {said}"


def test_the_newest_event_counts():
    old, new = read("FailedMount", "old", lastTimestamp="2026-01-01T00:00:00Z"), read("FailedMount", "new", lastTimestamp="2026-01-02T00:00:00Z")  # fmt: skip
    assert explain("", [new, old], {}) == "volume not mounted: new"


@pytest.mark.parametrize("phase, is_told", [("Pending", True), ("Running", False), ("Failed", False)])
def test_only_a_pending_replica_is_explained_by_events(phase, is_told):
    attempt = AttemptObjects(REF, OWNER, (read_pod(thing(phase=phase)),), troubles=(read("FailedMount", "said"),))
    assert ("said" in attempt.replicas([("worker", 0)])[0].reason) is is_told


def test_an_event_about_an_earlier_pod_of_the_same_name_is_ignored():
    attempt = AttemptObjects(REF, OWNER, (read_pod(thing(phase="Pending", uid="new")),), troubles=(read("FailedMount", "said"),))  # fmt: skip
    assert attempt.replicas([("worker", 0)])[0].reason == ""


@pytest.mark.parametrize(
    "made",
    [
        event("web-5d9", "u", "FailedMount", "x"), event("7-abc-1-worker-0", "u", "Unhealthy", "x"),
        event("7-abc-1-worker-0", "u", "Failed", "Error: x"), event("7-abc-1-worker-0", None, "FailedMount", "x"),
    ],
)  # fmt: skip
def test_unrelated_events_are_ignored(made):
    assert read_trouble(made) is None


@pytest.mark.parametrize("run, attempt, role, index", [("7-abc", 1, "worker", 0), ("7", 12, "a-b-c", 345), ("123-4", 5, "w", 6)])  # fmt: skip
def test_a_pods_name_gives_its_run_and_attempt(run, attempt, role, index):
    assert labels.attempt_of_name(labels.pod(run, attempt, role, index)) == (run, attempt)


@settings(max_examples=200)
@given(ABSURD, ABSURD)
def test_malformed_events_raise_no_error(about, anything):
    assert read_trouble(anything) is None
    made = event("7-abc-1-worker-0", "u", "FailedMount", "x")
    read_trouble({**made, "involvedObject": about, "lastTimestamp": anything})
    found = read_trouble({**made, "message": anything, "lastTimestamp": anything})
    assert found is not None and isinstance(explain("", [found], {}), str)


# -- on a real API server


def claim(place, name: str) -> None:
    """Create a bound claim, so that the scheduler places pods that use it."""
    volume = f"{place.namespace}-{name}"
    size = {"storage": "1Gi"}
    said = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {**said, "capacity": size, "hostPath": {"path": "/nowhere"}, "claimRef": {"namespace": place.namespace, "name": name}}  # fmt: skip
    answer = place.admin.post("/api/v1/persistentvolumes", json={"metadata": {"name": volume}, "spec": spec})
    assert answer.status_code == 201, answer.text
    wanted = {**said, "volumeName": volume, "resources": {"requests": size}}
    place.make("persistentvolumeclaims", {"metadata": {"name": name}, "spec": wanted})
    path = place.path("persistentvolumeclaims", name)
    until(lambda: place.admin.get(path).json()["status"].get("phase") == "Bound")


def say(place, index: int, reason: str, message: str, **changes) -> None:
    """Create an Event as a kubelet does."""
    uid = place.pods()[pod_name(index)]["metadata"]["uid"]
    made = event(pod_name(index), uid, reason, message, about={"namespace": place.namespace}, **changes)
    made["metadata"] = {"generateName": "e", "namespace": place.namespace}
    place.make("events", made)


def reason(cluster, index: int = 0) -> str:
    return cluster.observe(REF, expected()).replicas[index].reason


@pytest.fixture
def waits(place):
    """A cluster with two pending replicas that have a node but no reason."""
    claim(place, "scratch")
    cluster = place.cluster(IMAGE="rig/waits", JOB_CLAIM="scratch")
    cluster.apply(plan())
    until(lambda: all(one.node for one in cluster.observe(REF, expected()).replicas))
    assert states(cluster) == ["pending", "pending"]
    yield cluster
    place.admin.delete(f"/api/v1/persistentvolumes/{place.namespace}-scratch")


def test_an_unmounted_volume_is_reported_with_its_claim_and_announced_as_a_change(place, waits):
    changes = waits.changes()
    until(lambda: next(changes) == "")
    say(place, 1, "FailedMount", 'MountVolume.SetUp failed for volume "nfs-1" : mount.nfs: Connection timed out')
    until(lambda: next(changes) == "7-abc")
    until(lambda: reason(waits, 1))
    assert reason(waits, 1) == 'volume not mounted, claim scratch: MountVolume.SetUp failed for volume "nfs-1" : mount.nfs: Connection timed out'  # fmt: skip
    assert reason(waits, 0) == ""


def test_hostile_events_do_not_stop_the_event_loop(place, waits):
    say(place, 0, "FailedMount", "\x1b[2J\u202e\U0001f600" + "y" * 100_000)
    say(place, 0, "FailedMount", "last", lastTimestamp="9999-01-01T00:00:00Z")
    until(lambda: reason(waits) == "volume not mounted, claim scratch: last")


def test_an_account_that_may_not_read_events_works_without_them(place):
    with place.gate() as gate:
        gate.refuse(403, verb="GET", kind="events", times=1000)
        cluster = place.cluster(gate.kubeconfig(place.kubeconfig), IMAGE="rig/waits")
        cluster.apply(plan())
        until(lambda: gate.seen["GET events"] == 1)  # after the watch was refused
        until(lambda: cluster.observe(REF, expected()).replicas[0].node)
        assert reason(cluster) == ""
        assert gate.seen["GET events"] == 1, "it is not asked for again and again"
        place.clusters.remove(cluster)
        cluster.close()
