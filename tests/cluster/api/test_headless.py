"""The headless Service of a job's own name: it selects the attempt's pods, ends with it, and takes nobody's place."""

from typing import Any

import pytest

from common.errors import Unreachable
from jobs.core.lifecycle import Phase
from tests.cluster.api.test_clock import Later, queue
from tests.cluster.conftest import NamespaceFixture, end, launch, plan, states
from tests.support.patience import until

__all__ = ["queue"]
NAME = "gpt-small-headless"


def a_plan(**changes: Any):
    return plan(job="gpt-small", is_headless=True, **changes)


def service(place: NamespaceFixture) -> dict[str, Any] | None:
    answer = place.admin.get(place.path("services", NAME))
    return answer.json() if answer.status_code == 200 else None


def endpoints(place: NamespaceFixture) -> set[str]:
    """The addresses to which the Service's name resolves."""
    slices = place.admin.get(f"/apis/discovery.k8s.io/v1/namespaces/{place.namespace}/endpointslices").json()["items"]
    mine = [one for one in slices if one["metadata"]["labels"].get("kubernetes.io/service-name") == NAME]
    return {address for one in mine for endpoint in one["endpoints"] or [] for address in endpoint["addresses"]}


def test_its_name_leads_to_all_pods_of_the_attempt_and_ends_with_it(place, cluster):
    launch(cluster, a_plan())
    until(lambda: set(states(cluster)) == {"running"})
    until(lambda: endpoints(place) == {pod["status"]["podIP"] for pod in place.pods().values()})
    launch(cluster, a_plan())  # as after a crash: there already
    first = service(place)["metadata"]["uid"]
    end(cluster)
    launch(cluster, a_plan(attempt=2))  # waits for the one before to be removed
    assert service(place)["metadata"]["uid"] != first
    end(cluster, attempt=2)
    until(lambda: service(place) is None)


def test_a_name_of_somebody_else_is_waited_for_and_left_alone(place, people, queue):
    theirs = place.make("services", {"metadata": {"name": NAME}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    life = Later(place, queue, people.owner)
    job = life.submit_only(name="gpt-small", headless_service=1)
    words = f"Service {NAME} exists and is not Muster's: this job waits until it is gone; delete it, give the job another name"
    until(lambda: life.until(job, *Phase) and words in "\n".join(life.told(job)))
    assert job.phase == Phase.STARTING and place.pods() == {}
    assert service(place) == theirs
    place.remove("services", NAME)
    life.until(job, Phase.RUNNING)
    assert service(place)["metadata"]["ownerReferences"][0]["name"] == f"m-{job.run}-1"


def test_a_name_of_another_job_is_waited_for(place, cluster):
    launch(cluster, a_plan())
    other = a_plan(run="8-abc")
    with pytest.raises(Unreachable, match=f"Service {NAME} exists and belongs to another job"):
        cluster.apply(other)
    assert all(name.startswith("7-abc-1-") for name in place.pods())
    end(cluster)
    launch(cluster, other)
    end(cluster, run="8-abc")
