"""Decoding of pods and Services: states, reasons in words, and ownership."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.clusters.kubernetes.api.decode import read_event, read_object
from jobs.clusters.kubernetes.api.objects import get
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.clusters.kubernetes.facts import pods
from jobs.clusters.kubernetes.facts.pods import AttemptObjects, Owner, Pod
from jobs.core.plan import Plan, Role
from jobs.core.verdict import ReplicaState
from tests.unit.clusters.kubernetes.test_manifests import SITE

PLAN = Plan("7-abc", 1, (Role("worker", 2, 1, ("x",)),))
REF = PLAN.ref
OWNER = Owner("m-7-abc-1", "ours", 5, "7-abc", 1, is_sealed=False, is_ending=False)
TOMBSTONE = Owner("m-7-abc-1", "stone", 9, "7-abc", 1, is_sealed=True, is_ending=False)


def as_told(thing: Any) -> tuple[Any, Any]:
    """The object as decoded from a line of a watch by schema, and as plain JSON."""
    line = json.dumps({"type": "MODIFIED", "object": thing}).encode()
    plain = json.loads(line)["object"]
    assert pods.read_pod(read_object(json.dumps(thing).encode())) == pods.read_pod(plain)
    return get(read_event(line), "object"), plain


def read_pod(thing: Any) -> Pod | None:
    """Read both ways, since a schema without a field would hide it."""
    shaped, plain = (pods.read_pod(one) for one in as_told(thing))
    assert shaped == plain
    return plain


def read_owner(thing: Any) -> Owner | None:
    shaped, plain = (pods.read_owner(one) for one in as_told(thing))
    assert shaped == plain
    return plain


def thing(
    index: int = 0, *, uid: str = "pod", owner: str = "ours", phase: str = "Running", spec=None, **status
) -> dict:
    """A pod; `spec` overrides fields of the pod's spec."""
    made = manifests.pod(PLAN, PLAN.roles[0], index, site=SITE, owner=owner, agent="a")
    made["metadata"] |= {"uid": uid, "resourceVersion": "17"}
    return {**made, "spec": {**made["spec"], **(spec or {})}, "status": {"phase": phase, **status}}


def read(*args, **kwargs) -> Pod:
    found = read_pod(thing(*args, **kwargs))
    assert found is not None
    return found


def ended(code: int, **said) -> dict:
    return {"containerStatuses": [{"state": {"terminated": {"exitCode": code, **said}}}]}


def waiting(reason: str, message: str = "said") -> dict:
    return {"containerStatuses": [{"image": "x:1", "state": {"waiting": {"reason": reason, "message": message}}}]}


def condition(kind: str, status: str, reason: str, message: str) -> dict:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    "phase, status, state, exit_code, signal, reason",
    [
        ("Pending", {}, "pending", None, None, ""),
        ("Running", {}, "running", None, None, ""),
        ("Succeeded", ended(0), "succeeded", 0, None, ""),
        ("Failed", ended(3), "failed", 3, None, ""),
        ("Failed", ended(143), "failed", None, 15, ""),
        ("Failed", ended(137, reason="OOMKilled"), "failed", None, 9, "out of memory"),
        ("Failed", ended(1, reason="OOMKilled"), "failed", None, 9, "out of memory"),
        ("Failed", ended(78, message="the job folder /muster/job cannot be written"), "failed", 78, None, "cannot be written"),
        ("Failed", {"reason": "Evicted", "message": "disk is full"}, "failed", None, None, "evicted from node (none): disk is full"),
        ("Failed", {"reason": "NodeLost"}, "lost", None, None, "node (none) does not answer"),
        ("Unknown", {}, "lost", None, None, "does not answer"),
        ("Pending", waiting("ErrImagePull"), "pending", None, None, "the image x:1 cannot be pulled (ErrImagePull): said"),
        ("Pending", waiting("CreateContainerConfigError"), "pending", None, None, "cannot be created"),
        ("Pending", waiting("ContainerCreating"), "pending", None, None, ""),
        (
            "Pending", condition("PodScheduled", "False", "Unschedulable", "0/9 nodes: 9 Insufficient nvidia.com/gpu."),
            "pending", None, None, "no place for it: 0/9 nodes: 9 Insufficient nvidia.com/gpu.",
        ),
        (
            "Running", condition("DisruptionTarget", "True", "DeletionByTaintManager", "the node is not ready"),
            "running", None, None, "its node is closed to it or does not answer (DeletionByTaintManager): the node is not ready",
        ),
    ],
)  # fmt: skip
def test_states_and_reasons(phase, status, state, exit_code, signal, reason):
    found = read(phase=phase, **status)
    assert (found.state, found.exit_code, found.signal) == (state, exit_code, signal)
    assert reason in found.reason and bool(reason) == bool(found.reason)


@pytest.mark.parametrize("phase, is_alive", [("Pending", True), ("Running", True), ("Unknown", True), ("Succeeded", False), ("Failed", False)])  # fmt: skip
def test_a_pod_that_has_not_ended_is_alive(phase, is_alive):
    assert read(phase=phase).is_alive is is_alive


def test_a_regular_pod_is_decoded_by_schema_and_a_malformed_one_as_plain_json():
    shaped, plain = as_told(thing(**ended(3)))
    assert type(shaped) is not dict and get(shaped, "status", "phase") == get(plain, "status", "phase")
    shaped, plain = as_told({**thing(), "status": [1, 2]})
    assert shaped == plain


def test_the_error_that_ends_a_watch_is_decoded():
    error = {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "message": "too old", "code": 410}}
    said = read_event(json.dumps(error).encode())
    assert (get(said, "type"), get(said, "object", "code"), get(said, "object", "message")) == ("ERROR", 410, "too old")


def test_ownership_follows_the_owners_uid():
    ours, forged = read(0), read(1, uid="forged", owner="somebody")
    attempt = AttemptObjects(REF, OWNER, (ours, forged))
    assert attempt.ours == (ours,)
    assert [one.state for one in attempt.replicas([("worker", 0), ("worker", 1)])] == ["running", "absent"]


def test_a_pod_with_our_label_and_no_owner_is_foreign():
    bare = thing(1, uid="bare")
    del bare["metadata"]["ownerReferences"]
    attempt = AttemptObjects(REF, OWNER, (read(0), read_pod(bare)))
    assert [pod.uid for pod in attempt.foreign] == ["bare"]


def test_a_pod_under_another_name_is_foreign_even_with_our_owner():
    other = thing(0)
    other["metadata"]["name"] = "something-else"
    attempt = AttemptObjects(REF, OWNER, (read_pod(other),))
    assert attempt.ours == () and len(attempt.foreign) == 1


def test_pods_of_a_deleted_owner_still_count_as_alive():
    for owner in (None, TOMBSTONE):
        attempt = AttemptObjects(REF, owner, (read(0),))
        assert attempt.is_any_alive and not attempt.has_live_owner


def test_only_a_tombstone_seals_an_attempt():
    assert [AttemptObjects(REF, owner).is_sealed for owner in (None, OWNER, TOMBSTONE)] == [False, False, True]


def test_a_pod_that_completed_during_its_grace_period_has_succeeded():
    done, killed = read(0, phase="Succeeded"), read(1)
    attempt = AttemptObjects(REF, TOMBSTONE, gone=(done, killed))
    seen = attempt.replicas([("worker", 0), ("worker", 1)])
    assert [(one.state, one.is_alive) for one in seen] == [("succeeded", False), ("absent", False)]


def test_a_present_pod_hides_the_end_of_an_earlier_one_of_the_same_name():
    attempt = AttemptObjects(REF, OWNER, (read(0),), gone=(read(0, uid="earlier", phase="Failed"),))
    assert attempt.replicas([("worker", 0)])[0].state is ReplicaState.RUNNING


def test_a_service_is_read_with_its_seal():
    for made, is_sealed in ((manifests.service(PLAN), False), (manifests.tombstone("7-abc", 1), True)):
        made["metadata"] |= {"uid": "u", "resourceVersion": "3"}
        found = read_owner(made)
        assert found is not None and found.is_sealed is is_sealed and found.version == 3


def test_a_service_of_another_name_is_not_an_owner():
    made = manifests.service(PLAN)
    made["metadata"] |= {"uid": "u", "name": "web"}
    assert read_owner(made) is None


ABSURD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["phase", "reason", "message", "conditions", "containerStatuses", "state", "waiting", "type",
                         "terminated", "exitCode", "status", "name", "message", "lastState", "limits", "uid", "kind", "ownerReferences", "resourceVersion"]),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300)
@given(ABSURD, ABSURD, ABSURD)
def test_malformed_objects_raise_no_error(status, references, version):
    made = thing(0)
    made["status"] = status
    made["metadata"] |= {"ownerReferences": references, "resourceVersion": version}
    found = read_pod(made)
    assert found is not None and len(found.reason) <= 500
    AttemptObjects(REF, OWNER, (found,)).replicas([("worker", 0)])


@given(ABSURD)
def test_values_that_are_not_objects_are_ignored(anything):
    assert read_pod(anything) is None and read_owner(anything) is None
    assert labels.attempt_of(anything) == ("", 0)


def mesh_pod(index: int = 1, *, uid: str = "pod", maker: str = "trainers", **status) -> dict:
    """A pod as the StatefulSet `maker` makes it from the template of MonarchMesh `trainers`."""
    said = {
        **labels.of_role("7-abc", 1, "trainers", owner="ours"),
        labels.POD_INDEX: str(index),
        labels.MESH: "trainers",
    }
    owners = [{"kind": "StatefulSet", "name": maker, "uid": "set", "controller": True}]
    about = {
        "name": f"trainers-{index}",
        "uid": uid,
        "resourceVersion": "17",
        "labels": said,
        "ownerReferences": owners,
    }
    return {"metadata": about, "spec": {"restartPolicy": "Always"}, "status": {"phase": "Running", **status}}


def test_a_meshs_pod_has_its_number_from_its_statefulset():
    found = read_pod(mesh_pod())
    assert (found.spot, found.owner, found.is_of_mesh) == (("trainers", 1, 0), "ours", True)


@pytest.mark.parametrize("other", [{"maker": "mesh"}, {"index": 2}])
def test_a_pod_that_only_has_the_labels_of_a_mesh_is_not_ours(other):
    made = mesh_pod(**other)
    made["metadata"]["name"] = "trainers-1"
    assert read_pod(made).owner == ""


@pytest.mark.parametrize(("code", "state"), [(0, ReplicaState.SUCCEEDED), (3, ReplicaState.FAILED)])
def test_a_container_that_ended_ends_the_replica_although_another_one_was_started(code, state):
    running = {"startedAt": "2026-01-01T00:00:00Z"}
    again = {"containerStatuses": [{"state": {"running": running}, "lastState": {"terminated": {"exitCode": code}}}]}
    found = read_pod(mesh_pod(**again))
    assert (found.state, found.exit_code, found.is_alive, found.is_restarted) == (state, code, True, True)


def test_a_pod_in_the_place_of_a_deleted_one_counts_as_lost():
    before, now = read_pod(mesh_pod(uid="first")), read_pod(mesh_pod(uid="second"))
    attempt = AttemptObjects(REF, OWNER, (now,), (before,))
    (seen,) = attempt.replicas([("trainers", 1)])
    assert (seen.state, seen.is_alive) == (ReplicaState.LOST, True)
    assert seen.reason == "its pod trainers-1 was deleted, and MonarchMesh made another"
