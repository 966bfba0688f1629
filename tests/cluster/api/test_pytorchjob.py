"""Kubeflow's training-operator beside Muster: a PyTorchJob of the same name, and whose pods are whose."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench import pytorchjob
from rig import programs
from rig.plane import ControlPlane
from tests.cluster.conftest import TOLERATIONS, NamespaceFixture, end, launch, plan, states
from tests.support.machine import need
from tests.support.patience import until

NAME = "gpt-small"
THEIRS = {f"{NAME}-master-0", f"{NAME}-worker-0"}


@pytest.fixture
def operator(place: NamespaceFixture) -> Iterator[None]:
    """The real one, built from its module: a minute and a half on two cores, the first time."""
    need(isinstance(place.plane, ControlPlane), "its certificates are those of the rig")
    try:
        programs.build(pytorchjob.SOURCES)
    except programs.CanNotBuild as problem:
        need(False, f"the training-operator cannot be built here: {problem}")
    with pytorchjob.operator(place.plane, place.admin):
        yield


def jobs(place: NamespaceFixture, name: str = "") -> str:
    return f"/apis/kubeflow.org/v1/namespaces/{place.namespace}/pytorchjobs" + (f"/{name}" if name else "")


def a_pytorchjob() -> dict[str, Any]:
    """A master and a worker, whose pods are deleted when the job has ended."""
    container = {
        "image": "x:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    made = pytorchjob.job(NAME, 2, {"containers": [container], "securityContext": security, "tolerations": TOLERATIONS})
    made["spec"]["runPolicy"] = {"cleanPodPolicy": "All"}
    return made


def uids(place: NamespaceFixture, names: set[str] | None = None) -> dict[str, str]:
    """Of Muster's pods, or of those with these names: which they are, and who controls or owns them."""
    found = {}
    for name, pod in place.pods().items():
        if name in names if names else name not in THEIRS:
            owners = [f"{one['kind']} {one['name']}" for one in pod["metadata"].get("ownerReferences", [])]
            found[name] = f"{pod['metadata']['uid']} {pod['status'].get('phase')} {' '.join(owners)}"
    return found


def counted(place: NamespaceFixture) -> dict[str, int]:
    """How many running pods the operator takes for its job's own, by role."""
    found = place.admin.get(jobs(place, NAME)).json().get("status", {}).get("replicaStatuses", {})
    return {role: one.get("active", 0) for role, one in found.items()}


def start_theirs(place: NamespaceFixture) -> None:
    answer = place.admin.post(jobs(place), json=a_pytorchjob())
    assert answer.status_code == 201, answer.text
    until(lambda: {name for name, one in uids(place, THEIRS).items() if " Running " in one} == THEIRS)


@pytest.mark.full
def test_a_pytorchjob_of_the_same_name_neither_adopts_nor_deletes_a_job_s_pods(place, cluster, operator):
    launch(cluster, plan(job=NAME, user="ann", is_headless=True))
    until(lambda: set(states(cluster)) == {"running"})
    mine = uids(place)
    assert all(one.endswith("Running Service m-7-abc-1") for one in mine.values()) and len(mine) == 2
    labels = place.pods()["7-abc-1-worker-0"]["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == NAME

    start_theirs(place)
    until(lambda: counted(place) == {"Master": 1, "Worker": 1}, seconds=60)
    place.annotate(f"{NAME}-master-0", exit_code="0")
    until(lambda: not uids(place, THEIRS), seconds=60)  # it deletes the pods that are its own
    assert uids(place) == mine and states(cluster) == ["running", "running"]

    place.admin.delete(jobs(place, NAME))
    until(lambda: place.admin.get(jobs(place, NAME)).status_code == 404)
    start_theirs(place)
    theirs = uids(place, THEIRS)
    end(cluster)
    assert uids(place) == {} and uids(place, THEIRS) == theirs
