"""The keeper of a claim on a real API server: admitted at level restricted, one at a time, and never taken for a replica."""

import time
from dataclasses import dataclass, field

import pytest

from common.errors import Refused, Unreachable
from jobs.clusters.kubernetes.build import labels
from jobs.core.keeping import Errand
from tests.cluster.api.test_claims import CLASS, make_class
from tests.cluster.conftest import REF, NamespaceFixture, end, run_all
from tests.support.keepers import ERRAND, check_one_that_does_not_start
from tests.support.patience import until

NAME = labels.keeper("scratch")


@dataclass
class Ahead:
    """A clock that a test moves forward."""

    seconds: float = field(default=0.0)

    def __call__(self) -> float:
        return time.time() + self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


def make_claim(place: NamespaceFixture) -> None:
    make_class(place)
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": CLASS}
    size = {"storage": "1Gi"}
    place.make(
        "persistentvolumeclaims", {"metadata": {"name": "scratch"}, "spec": {**spec, "resources": {"requests": size}}}
    )
    storage = {
        **spec, "capacity": size, "hostPath": {"path": "/nowhere"},
        "claimRef": {"namespace": place.namespace, "name": "scratch"},
    }  # fmt: skip
    body = {"metadata": {"name": f"{place.namespace}-scratch"}, "spec": storage}
    assert place.admin.post("/api/v1/persistentvolumes", json=body).status_code == 201


def phase(place: NamespaceFixture) -> str:
    return str(place.pods()[NAME]["status"]["phase"])


def test_one_that_does_not_start_is_given_up_and_made_again(place, clock):
    """Its claim does not exist, so no node takes it."""
    cluster = place.cluster(clock=clock)
    check_one_that_does_not_start(cluster, keepers=lambda: len(place.pods()), advance=clock.advance)
    assert cluster.keep(ERRAND) is None
    until(lambda: place.pods()[NAME]["status"].get("conditions"))
    clock.advance(700)
    kept = cluster.keep(ERRAND)
    assert kept is not None and "scratch" in kept.problem and "not ended in 10 min" in kept.problem


def test_it_runs_beside_an_attempt_and_is_no_part_of_it(place, clock):
    make_claim(place)
    cluster = place.cluster(clock=clock)
    assert cluster.keep(ERRAND) is None
    until(lambda: phase(place) == "Running")
    run_all(cluster)
    assert cluster.open_attempts() == [REF.within(place.namespace)]
    found = {one.name for one in cluster.view().pods.everything()}
    assert found == set(place.pods()) - {NAME}
    end(cluster)
    assert cluster.open_attempts() == [] and list(place.pods()) == [NAME], "the end of an attempt does not end it"
    place.annotate(NAME, exit_code="0")
    until(lambda: phase(place) == "Succeeded")
    with pytest.raises(Unreachable, match="cannot be read yet"):  # no kubelet is behind a simulated node
        cluster.keep(ERRAND)
    clock.advance(700)
    kept = cluster.keep(ERRAND)
    assert kept is not None and "its log cannot be read" in kept.problem
    until(lambda: place.pods() == {})


def test_one_that_fails_says_why_at_once(place):
    make_claim(place)
    cluster = place.cluster()
    assert cluster.keep(ERRAND) is None
    until(lambda: phase(place) == "Running")
    place.annotate(NAME, exit_code="137")
    until(lambda: phase(place) == "Failed")
    kept = cluster.keep(ERRAND)
    assert kept is not None and kept.problem.startswith("its pod said nothing: ")
    until(lambda: place.pods() == {})


def test_a_foreign_pod_of_its_name_is_left_alone(place, clock):
    cluster = place.cluster(clock=clock)
    assert cluster.keep(Errand("other")) is None
    spec = place.pods()[labels.keeper("other")]["spec"]
    place.make("pods", {"metadata": {"name": NAME}, "spec": {**spec, "nodeName": None}})
    clock.advance(700)
    with pytest.raises(Refused, match="exists and is not Muster's; delete it"):
        cluster.keep(ERRAND)
    assert NAME in place.pods()


def test_a_quota_that_is_used_up_refuses_it(place):
    place.make("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    until(lambda: place.admin.get(place.path("resourcequotas", "none")).json().get("status", {}).get("hard"))
    with pytest.raises(Refused, match=r"the cluster refuses the keeper: .*exceeded quota"):
        place.cluster().keep(ERRAND)
