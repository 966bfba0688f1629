"""The pods of a cluster's check on a real API server: admitted at level restricted, never taken for replicas, and gone at the end."""

import json

import pytest

from jobs.clusters import Probes
from jobs.clusters.kubernetes.api.answers import ApiAnswer
from jobs.clusters.kubernetes.build import labels
from jobs.core.attempt_ref import AttemptRef
from jobs.core.probing import GIVEN_UP, Probe
from queues.shape import ReplicaShape
from tests.cluster.api.test_keeper import Ahead
from tests.cluster.conftest import REF, NamespaceFixture, end, pod_name, run_all
from tests.support.patience import until
from tests.unit.clusters.kubernetes.test_pod_findings import ANSWER, WELL

ASKED = Probe("abc123")
FIRST, SECOND = (labels.check(ASKED.uid, part) for part in ("first", "second"))
ANSWERS = {FIRST: ANSWER, SECOND: {"probe": 1, "part": "second", "peer": WELL}}


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


def with_logs(cluster, monkeypatch, answers=ANSWERS) -> list[str]:
    """Answer for the kubelet, which no simulated node has; return the list to which each request is added.

    A pod that is not in `answers` has printed nothing of its own yet.
    """
    asked, call = [], cluster.api.call

    async def answer(verb, path, **more):
        asked.append(f"{verb} {path}")
        if path.endswith("/log"):
            name = path.split("/")[-2]
            printed = json.dumps(answers[name]).encode() if name in answers else b""
            return ApiAnswer(200, b"a warning of the image\n" + printed)
        return await call(verb, path, **more)

    monkeypatch.setattr(cluster.api, "call", answer)
    return asked


def running(place: NamespaceFixture, name: str) -> None:
    until(lambda: (one := place.pods().get(name)) and one["status"]["phase"] == "Running" and one["status"]["podIP"])


def removed(cluster, place: NamespaceFixture) -> None:
    until(lambda: cluster.remove_probe(ASKED.uid))
    assert place.pods() == {}


def test_two_pods_are_made_one_after_the_other_and_deleted(place: NamespaceFixture, monkeypatch):
    cluster = place.cluster()
    assert isinstance(cluster, Probes)
    answers = {FIRST: ANSWERS[FIRST]}
    asked = with_logs(cluster, monkeypatch, answers)
    assert cluster.probe(ASKED, is_late=False) is None
    assert list(place.pods()) == [FIRST]
    running(place, FIRST)
    assert cluster.probe(ASKED, is_late=False) is None
    first, second = (place.pods()[name] for name in (FIRST, SECOND))
    told = json.loads(second["spec"]["containers"][0]["env"][0]["value"])
    assert told["peer"] == first["status"]["podIP"], "the second is told where the first listens"
    assert cluster.probe(ASKED, is_late=False) is None, "as long as the second has not answered"
    running(place, SECOND)
    assert cluster.probe(ASKED, is_late=False) is None, "it runs and has not printed its answer"
    answers[SECOND] = ANSWERS[SECOND]
    found = cluster.probe(ASKED, is_late=False)
    assert {one.about for one in found} == {"pods", "names", "control plane", "network", "image"}
    assert {one.state for one in found} == {"ok"}
    assert cluster.probe(ASKED, is_late=False) == found, "a process that dies before it writes that finds it again"
    for pod in (first, second):
        assert pod["spec"]["automountServiceAccountToken"] is False and "ownerReferences" not in pod["metadata"]
    removed(cluster, place)
    kinds = {one.split("/")[-1] if one.startswith("POST") else one.split()[0] for one in asked}
    assert kinds == {"configmaps", "pods", "GET", "DELETE"} and len(asked) < 30


def test_they_run_beside_an_attempt_and_are_no_part_of_it(place: NamespaceFixture):
    cluster = place.cluster()
    assert cluster.probe(ASKED, is_late=False) is None
    running(place, FIRST)
    run_all(cluster)
    assert cluster.open_attempts() == [REF.within(place.namespace)]
    assert {one.name for one in cluster.view().pods.everything()} == set(place.pods()) - {FIRST}
    end(cluster)
    assert cluster.open_attempts() == [] and list(place.pods()) == [FIRST], "the end of an attempt does not end it"
    late = cluster.probe(ASKED, is_late=True)
    assert [one.about for one in late] == ["pods"] and "its log cannot be read" in late[0].words, "no kubelet is there"
    removed(cluster, place)


def test_one_that_no_node_takes_says_why_after_a_moment(place: NamespaceFixture, clock):
    cluster = place.cluster(clock=clock)
    nowhere = Probe(ASKED.uid, ReplicaShape(node_selector={"pool": "gpus"}))
    assert cluster.probe(nowhere, is_late=False) is None
    until(lambda: place.pods()[FIRST]["status"].get("conditions"))
    assert cluster.probe(nowhere, is_late=False) is None, "a node may become free"
    clock.advance(60)
    (one,) = cluster.probe(nowhere, is_late=False)
    assert one.state == "wrong" and "nodes fit" in one.words and "NODE_SELECTOR" in one.remedy
    scaled = place.cluster(clock=clock, MORE_NODES=True)
    assert scaled.probe(nowhere, is_late=False) is None, "an autoscaler may be making one"
    assert "nodes fit" in scaled.probe(nowhere, is_late=True)[0].words
    removed(cluster, place)


def test_one_that_fails_says_why_at_once(place: NamespaceFixture):
    cluster = place.cluster()
    assert cluster.probe(ASKED, is_late=False) is None
    running(place, FIRST)
    place.annotate(FIRST, exit_code="137")
    until(lambda: place.pods()[FIRST]["status"]["phase"] == "Failed")
    (one,) = cluster.probe(ASKED, is_late=False)
    assert one.state == "wrong" and "ended with code 137" in one.words
    removed(cluster, place)


def test_one_whose_status_gives_no_reason_has_that_of_its_newest_event(place: NamespaceFixture, clock):
    """As where the network plug-in does not set up pods."""
    cluster = place.cluster(clock=clock, IMAGE="rig/waits")
    assert cluster.probe(ASKED, is_late=False) is None
    until(lambda: place.pods()[FIRST]["spec"].get("nodeName"))
    clock.advance(60)
    assert cluster.probe(ASKED, is_late=False) is None, "it may be pulling its image"
    about = {"kind": "Pod", "name": FIRST, "namespace": place.namespace}
    said = {"reason": "FailedCreatePodSandBox", "type": "Warning", "message": "plugin type=x failed", "count": 3}
    place.make(
        "events",
        {"metadata": {"name": "odd"}, "involvedObject": about, **said, "lastTimestamp": "2031-01-01T00:00:00Z"},
    )
    (one,) = cluster.probe(ASKED, is_late=False)
    assert "FailedCreatePodSandBox: plugin type=x failed" in one.words and "get events" in one.remedy
    pulls = {"reason": "Pulling", "type": "Normal", "message": "Pulling image", "lastTimestamp": "2031-01-01T00:00:01Z"}
    place.make("events", {"metadata": {"name": "pulls"}, "involvedObject": about, **pulls})
    assert cluster.probe(ASKED, is_late=False) is None, "by now it is"
    assert "plugin type=x failed" in cluster.probe(ASKED, is_late=True)[0].words
    removed(cluster, place)


def test_a_quota_that_is_used_up_refuses_them(place: NamespaceFixture):
    place.make("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    until(lambda: place.admin.get(place.path("resourcequotas", "none")).json().get("status", {}).get("hard"))
    (one,) = place.cluster().probe(ASKED, is_late=False)
    assert one.state == "wrong" and "exceeded quota" in one.words and "resourcequota" in one.remedy
    assert place.pods() == {}


def test_what_a_check_that_died_left_is_removed_by_the_next(place: NamespaceFixture, clock):
    cluster = place.cluster(clock=clock)
    assert cluster.probe(Probe("dead01"), is_late=False) is None
    assert cluster.probe(Probe("other1"), is_late=False) is None
    assert len(place.pods()) == 2, "another check, or another installation's, is left alone while it may be at work"
    clock.advance(GIVEN_UP.total_seconds() + 60)
    assert cluster.probe(ASKED, is_late=False) is None
    until(lambda: list(place.pods()) == [FIRST])
    removed(cluster, place)


def test_events_are_read_raw_in_one_request(place: NamespaceFixture, monkeypatch):
    cluster = place.cluster()
    run_all(cluster)
    asked = with_logs(cluster, monkeypatch)
    for number, name in enumerate([pod_name(0), pod_name(1), pod_name(0, attempt=2), "other"]):
        about = {"kind": "Pod", "name": name, "namespace": place.namespace}
        said = {"reason": "Odd", "type": "Warning", "message": f"number {number}\x1b[31m", "count": number + 1}
        times = {"firstTimestamp": "2031-01-01T00:00:00Z", "lastTimestamp": f"2031-01-01T00:00:0{number}Z"}
        place.make("events", {"metadata": {"name": f"odd-{number}"}, "involvedObject": about, **said, **times})
    found = cluster.raw_events(REF, [pod_name(0), pod_name(1)])
    odd = [one for one in found.events if one.reason == "Odd"]
    assert [(one.object, one.count, one.type) for one in odd] == [
        (f"Pod/{pod_name(1)}", 2, "Warning"), (f"Pod/{pod_name(0)}", 1, "Warning"),
    ]  # fmt: skip
    assert odd[0].message == "number 1 [31m" and odd[0].at.year == 2031
    assert any(one.reason == "Scheduled" for one in found.events), "by the scheduler, in the form of newer libraries"
    assert len(asked) == 1 and found.message == ""
    (one,) = cluster.raw_events(AttemptRef("7-abc", 2), [pod_name(0, attempt=2)]).events
    assert one.object == f"Pod/{pod_name(0, attempt=2)}"
    end(cluster)


def test_without_the_right_to_list_events_that_is_said(place: NamespaceFixture):
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/roles/muster"
    role = place.admin.get(path).json()
    role["rules"] = [one for one in role["rules"] if "events" not in one["resources"]]
    assert place.admin.put(path, json=role).status_code == 200
    cluster = place.cluster()
    until(lambda: "may not list Events" in cluster.raw_events(REF, []).message)
    assert "deploy/account.yaml" in cluster.raw_events(REF, []).message
