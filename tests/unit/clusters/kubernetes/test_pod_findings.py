"""What two pods of a check say of a cluster, in words, with the remedy and who can apply it."""

from typing import Any

import pytest

from agent.errands.probe import driver_in
from jobs.clusters.kubernetes.build import labels, probe
from jobs.clusters.kubernetes.facts.pod_reasons import why_no_answer
from jobs.clusters.kubernetes.reading.pod_findings import PodSaid, of_pods
from jobs.clusters.kubernetes.reading.probing import printed
from jobs.core.probing import Probe
from jobs.core.verdict import NO_PLACE
from queues.shape import ReplicaShape
from tests.support.kube_site import site_of

IMAGE = "team/train:1"
WELL = {"seconds": 0.02, "problem": "", "words": ""}
ANSWER: dict[str, Any] = {
    "probe": 1, "part": "first", "python": "3.11.9", "driver": "570.86.15",
    "packages": {"torch": "2.8.0", "ray": "2.49.0", "torchmonarch": "0.1.0"}, "torch": {"cuda": "12.8", "hip": ""},
    "names": {"kubernetes.default.svc": WELL, "muster.test": WELL}, "port": WELL,
    "control": {**WELL, "status": 401, "type": "application/problem+json"},
}  # fmt: skip
SECOND = PodSaid("n2", "10.0.0.8", {"probe": 1, "part": "second", "peer": WELL})


def failed(kind: str, words: str = "why", **more: Any) -> dict[str, Any]:
    return {"seconds": 3.0, "problem": kind, "words": words, **more}


def told(second: PodSaid | None = SECOND, *, options: Any = None, **changes: Any) -> dict[str, list[Any]]:
    """Return the findings by what they are about, of pods that find all well except for the changes."""
    first = PodSaid("n1", "10.0.0.7", {**ANSWER, **changes})
    found: dict[str, list[Any]] = {}
    for one in of_pods(first, second, site=site_of(**(options or {})), image=IMAGE):
        found.setdefault(one.about, []).append(one)
    return found


def test_all_is_well():
    found = told()
    assert [(one.about, one.state) for group in found.values() for one in group] == [
        ("pods", "ok"), ("names", "ok"), ("control plane", "ok"), ("network", "ok"), ("image", "ok"),
    ]  # fmt: skip
    assert found["image"][0].words == (
        f"{IMAGE} holds Python 3.11.9, torch 2.8.0 for CUDA 12.8, ray 2.49.0, Monarch (torchmonarch) 0.1.0; "
        "node n1 has NVIDIA driver 570.86.15"
    )
    assert found["network"][0].words == "a pod reaches another one at port 29500 on node n1 from node n2"


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        (f"{NO_PLACE}: 0 of 3 nodes fit: 3 without enough free cpu", "NODE_SELECTOR"),
        ("the image team/train:1 cannot be pulled (ErrImagePull): 404", "PULL_SECRETS"),
        ('StartError: exec: "python3": executable file not found in $PATH', "Python 3.8"),
        ("DeadlineExceeded: Pod was active on the node longer", "get events"),
    ],
)
def test_a_pod_that_does_not_start_says_what_to_do(problem, remedy):
    (one,) = of_pods(PodSaid("n1", problem=problem), None, site=site_of(), image=IMAGE)
    assert (one.about, one.state) == ("pods", "wrong") and remedy in one.remedy and one.who


def test_a_pod_that_is_not_taken_points_to_quotas():
    said = PodSaid(problem="the cluster refuses a pod of the check: exceeded quota: none", is_refused=True)
    (one,) = of_pods(said, None, site=site_of(), image=IMAGE)
    assert "exceeded quota" in one.words and "resourcequota" in one.remedy


@pytest.mark.parametrize(
    ("control", "words", "remedy"),
    [
        (failed("name"), "cannot resolve the host", "CONTROL_URL"),
        (failed("certificate"), "does not trust the certificate", "CONTROL_CA"),
        (failed("tls"), "finds no TLS", "CONTROL_URL"),
        (failed("refused"), "nothing answers a pod", "CONTROL_URL"),
        (failed("timeout"), "gets no answer", "networkpolicies"),
        ({**WELL, "status": 400, "type": "text/html"}, "with 400, as no Muster does", "MUSTER_ALLOWED_HOSTS"),
        ({**WELL, "status": 308, "type": ""}, "with 308", "redirects"),
        ({**WELL, "status": 401, "type": "text/html"}, "with 401, as no Muster does", "CONTROL_URL"),
        ("odd", "with 0, as no Muster does", "CONTROL_URL"),
    ],
)
def test_a_control_plane_that_a_pod_does_not_reach(control, words, remedy):
    (one,) = told(control=control)["control plane"]
    assert one.state == "wrong" and words in one.words and remedy in one.remedy and one.who


def test_names_that_are_not_resolved():
    names = {"kubernetes.default.svc": failed("name", "no such name"), "muster.test": WELL}
    good, bad = told(names=names)["names"]
    assert good.words == "a pod resolves muster.test" and "no such name" in bad.words and "kube-dns" in bad.remedy
    (_, bad) = told(names={"kubernetes.default.svc": WELL, "muster.test": failed("timeout")})["names"]
    assert "control plane's host" in bad.words and "CONTROL_URL" in bad.remedy


def test_pods_that_are_cut_off_from_each_other():
    second = PodSaid("n2", "10.0.0.8", {"probe": 1, "peer": failed("timeout", "timed out")})
    (one,) = told(second)["network"]
    assert one.state == "wrong" and "on node n2 cannot reach one on node n1 at 10.0.0.7 port 29500" in one.words
    assert "get networkpolicies" in one.remedy and "may not list them" in one.remedy
    (one,) = told(second, options={"NETWORK_POLICY": True})["network"]
    assert one.state == "note" and "own policy" in one.words, "an attempt's own policy may allow what this pod lacks"


def test_one_node_alone_says_nothing_of_what_is_between_nodes():
    (one,) = told(PodSaid("n1", "10.0.0.8", SECOND.answer))["network"]
    assert one.state == "ok" and "between nodes it is not known" in one.words


@pytest.mark.parametrize("second", [None, PodSaid(problem="no node has room"), PodSaid("n2", answer=None)])
def test_without_a_second_pod_it_is_not_known(second):
    (one,) = told(second)["network"]
    assert one.state == "note" and "not known" in one.words


def test_what_an_image_lacks_is_named_with_who_needs_it():
    _, lacks = told(packages={"torch": "2.8.0", "ray": None, "torchmonarch": None})["image"]
    assert "holds no ray and no torchmonarch: jobs of ray and monarch" in lacks.words and lacks.state == "note"
    _, lacks = told(packages="odd", torch="odd", driver=7)["image"]
    assert "torchrun and ray and monarch" in lacks.words


def test_a_build_without_gpus_and_a_driver_that_is_too_old():
    _, plain = told(torch={"cuda": "", "hip": ""}, packages={**ANSWER["packages"], "torch": "2.8.0+cpu"})["image"]
    assert "built without CUDA and ROCm" in plain.words
    _, old = told(torch={"cuda": "13.0", "hip": ""})["image"]
    assert old.state == "wrong" and "needs driver 580 or later, and node n1 has NVIDIA driver 570.86.15" in old.words
    assert len(told(torch={"cuda": "12.8"}, driver="525.60.13")["image"]) == 1
    (ok,) = told(driver="")["image"]
    assert ok.words.endswith("node n1 shows no NVIDIA driver")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (x)", "570.86.15"),
        ("something else", ""),
    ],
)
def test_the_driver_of_a_node(text, version):
    assert driver_in(text) == version


def test_an_answer_is_found_behind_what_the_image_prints():
    assert printed(b'warning: x\n{"a": 1}\n{"probe": 1, "part": "first"}\nbye\n') == {"probe": 1, "part": "first"}
    assert printed(b"[1]\n" + b"[" * 100_000) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Running"}, ""),
        ({"phase": "Pending", "containerStatuses": [{"image": "x:1", "state": {"waiting": {"reason": "ErrImagePull", "message": "404"}}}]}, "cannot be pulled"),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "SyntaxError: odd"}}}]}, "it ended with code 1: SyntaxError: odd"),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3": not found'}}}]}, 'exec: "python3": not found'),
        ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "too long"}, "DeadlineExceeded: too long"),
    ],
)  # fmt: skip
def test_why_a_pod_gives_no_answer(status, words):
    found = why_no_answer({"status": status})
    assert (words in found) if words else found == ""


@pytest.mark.parametrize("part", [probe.FIRST, probe.SECOND])
def test_a_pod_of_a_check_is_unprivileged_and_is_taken_for_nothing_else(part):
    shape = ReplicaShape(image=IMAGE, node_selector={"pool": "gpus"}, tolerations=({"operator": "Exists"},))
    pod = probe.pod(Probe("abc123", shape), part, site=site_of(), agent="muster-agent-1", peer="10.0.0.7")
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is False and spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 600 and spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
    }  # fmt: skip
    assert container["image"] == IMAGE and spec["nodeSelector"]["pool"] == "gpus"
    assert {"operator": "Exists"} in spec["tolerations"] and [one["name"] for one in spec["volumes"]] == ["agent"]
    assert not [name for name in container["resources"]["limits"] if "/" in name], "it takes no device"
    assert labels.replica_of(pod["metadata"]["labels"]) is None and labels.OURS not in pod["metadata"]["labels"]
    assert labels.attempt_of_name(pod["metadata"]["name"]) == ("", 0)


def test_the_control_plane_s_host_is_resolved_if_it_is_a_name():
    assert probe.names(site_of(CONTROL_URL="https://muster.test:8443/x")) == ["kubernetes.default.svc", "muster.test"]
    assert probe.names(site_of(CONTROL_URL="http://10.0.0.1")) == ["kubernetes.default.svc"]
    assert probe.names(site_of(CONTROL_URL="http://[fd00::1]:80")) == ["kubernetes.default.svc"]


@pytest.mark.parametrize("uid", ["", "A", "a-b", "a" * 21, "x\n"])
def test_a_check_has_an_id_that_pods_can_be_named_after(uid):
    with pytest.raises(ValueError, match="cannot be part"):
        Probe(uid)
