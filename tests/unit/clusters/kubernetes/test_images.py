"""What proves that an image does not exist, with statuses and Events in the words of kubelets and runtimes."""

from dataclasses import replace

import pytest

from jobs.clusters.kubernetes.facts.events import PodTrouble, read_trouble
from jobs.clusters.kubernetes.facts.pods import AttemptObjects
from jobs.core.failure_kinds import Kind, of_reason
from jobs.core.verdict import RoleView, verdict
from tests.unit.clusters.kubernetes.test_pods import OWNER, REF, read, waiting

IMAGE = "registry.example/nlp/login-denied:v9"  # its name says nothing of what the registry answers
CONTAINERD = f'rpc error: code = NotFound desc = failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found'  # fmt: skip
CONTAINERD_2 = f'failed to pull and unpack image "{IMAGE}": failed to resolve image: {IMAGE}: not found'
CRI_O = "reading manifest v9 in registry.example/nlp/login-denied: manifest unknown: manifest unknown"
NO_REPOSITORY = "initializing source docker://x:1: reading manifest 1 in x: name unknown: repository name not known to registry"  # fmt: skip
DOCKER = f"Error response from daemon: manifest for {IMAGE} not found: manifest unknown: manifest unknown"

MISSING = [CONTAINERD, CONTAINERD_2, CRI_O, DOCKER, NO_REPOSITORY, "Error: repository does not exist"]
# What says "not found" of something else, or may pass.
OPEN = [
    'failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed',
    "Error response from daemon: pull access denied for nope, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
    'failed to resolve reference "ghcr.io/acme/llm:1": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token: 401 Unauthorized',
    'failed to resolve reference "ghcr.io/acme/llm:1": failed to authorize: failed to fetch oauth token: unexpected status: 404 Not Found: not found',
    'failed to resolve reference "x:1": unexpected status from HEAD request to https://registry.example/v2/x/manifests/1: 429 Too Many Requests: toomanyrequests: You have reached your pull rate limit',
    'failed to resolve reference "x:1": unexpected status from HEAD request to https://registry.example/v2/x/manifests/1: 503 Service Unavailable',
    'failed to do request: Head "https://registry.internal:5000/v2/base/manifests/12": dial tcp: lookup registry.internal on 10.96.0.10:53: no such host',
    'failed to do request: Head "https://registry.example/v2/x/manifests/1": dial tcp 10.0.0.7:443: i/o timeout',
    'failed to pull and unpack image "x:1": failed to copy: httpReadSeeker: failed open: content at https://registry.example/v2/x/blobs/sha256:6b4e not found: not found',
    'failed to pull and unpack image "x:1": no match for platform in manifest sha256:6b4e: not found',
    'failed to pull and unpack image "x:1": failed to prepare extraction snapshot "extract-1": missing parent "k8s.io/7/sha256:6b4e" bucket: not found',
    "reading manifest 1 in quay.io/x: unauthorized: access to the requested resource is not authorized",
    "manifest unknown: the mirror answered 502 Bad Gateway",
    "",
]  # fmt: skip


def missing(reason: str, message: str, *, image: str = IMAGE, which: str = "containerStatuses"):
    (status,) = waiting(reason, message)["containerStatuses"]
    return read(phase="Pending", **{which: [{**status, "image": image}]})


def failed(message: str, *, image: str = IMAGE, **said) -> PodTrouble:
    """A kubelet's Event about a failed pull of the pod that `read` returns."""
    about = {"kind": "Pod", "name": "7-abc-1-worker-0", "uid": said.pop("pod", "pod")}
    meta = {"name": "e", "uid": said.pop("uid", "e"), "resourceVersion": "3"}
    made = {"metadata": meta, "involvedObject": about, "reason": "Failed", "type": "Warning", "count": 1, **said}
    found = read_trouble({**made, "message": f'Failed to pull image "{image}": {message}'})
    assert found is not None
    return found


def seen(pod, *troubles: PodTrouble):
    (found,) = AttemptObjects(REF, OWNER, (pod,), troubles=troubles).replicas([("worker", 0)])
    return found


@pytest.mark.parametrize("message", MISSING)
@pytest.mark.parametrize(
    ("reason", "before"),
    [("ErrImagePull", ""), ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: ')],
)
def test_two_pulls_in_which_the_registry_does_not_have_the_image_fail_the_replica(message, reason, before):
    pod = missing(reason, before + message)
    assert seen(pod, failed(message)).state == "pending", "one pull is no proof"
    found = seen(pod, failed(message, count=2))
    assert (found.state, found.is_alive, found.exit_code, found.signal) == ("failed", True, None, None)
    assert found.reason.startswith(f"no such image: {IMAGE}, by 2 answers of its registry; correct the name, or push")
    assert of_reason(found.reason)[0] is Kind.IMAGE
    ending = verdict([RoleView("worker", 1, completes=True, essential=True)], [found])
    assert ending.is_hopeless and ending.message == f"worker-0: {found.reason}"


@pytest.mark.parametrize("message", OPEN)
def test_whatever_may_pass_waits_with_its_reason(message):
    found = seen(missing("ErrImagePull", message), failed(message, count=9))
    assert found.state == "pending"
    assert found.reason.startswith(f"the image {IMAGE} cannot be pulled (ErrImagePull)")


def test_pulls_are_counted_over_the_events_of_this_pod_and_image():
    pod = missing("ErrImagePull", CONTAINERD)
    one = failed(CONTAINERD)
    assert seen(pod, one, replace(failed(CONTAINERD_2), uid="f")).state == "failed", "the runtime's words may change"
    assert seen(pod, failed(CONTAINERD, count=None, series={"count": 2})).state == "failed"
    for other in (
        failed(CONTAINERD, count=5, pod="an earlier one of its name"),
        failed(CONTAINERD.replace(IMAGE, "warm:1"), image="warm:1", count=5),
        failed(OPEN[0], count=5),
        failed(CONTAINERD, count="many"),
    ):
        assert seen(pod, other).state == "pending", other


def test_events_alone_are_no_proof():
    """Whoever may create Events could end a job with them."""
    for pod in (missing("ErrImagePull", OPEN[-3]), missing("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"')):
        assert seen(pod, failed(CONTAINERD, count=9)).state == "pending"


def test_the_kubelet_adds_the_tag_that_a_name_lacks():
    pod = missing("ErrImagePull", CONTAINERD.replace(IMAGE, "docker.io/library/nope:latest"), image="nope")
    assert seen(pod, failed(CONTAINERD, image="nope:latest", count=2)).state == "failed"


def test_the_image_of_an_init_container_counts_and_is_named():
    pod = missing("ErrImagePull", CONTAINERD, which="initContainerStatuses")
    assert pod.reason.startswith(f"the image {IMAGE} cannot be pulled (ErrImagePull)")
    assert seen(pod, failed(CONTAINERD, count=2)).state == "failed"


def test_an_invalid_name_is_proof_by_itself():
    said = 'Failed to apply default image tag "nlp/Train:2 x": couldn\'t parse image name "nlp/Train:2 x": invalid reference format: repository name must be lowercase'  # fmt: skip
    found = seen(missing("InvalidImageName", said, image="nlp/Train:2 x"))
    assert found.state == "failed" and found.is_alive
    assert found.reason == "no such image: nlp/Train:2 x is no name of an image; write registry/path:tag in lowercase and submit again"  # fmt: skip
    assert of_reason(found.reason)[0] is Kind.IMAGE


def test_a_registry_that_is_away_is_no_reason_to_fail():
    said = "image pull failed for x:1 because the registry is unavailable: connect: no route to host"
    assert seen(missing("RegistryUnavailable", said)).state == "pending"


@pytest.mark.parametrize("message", ["failed to resolve reference " * 100_000, f"{CONTAINERD} {'x' * 10_000_000}"])
def test_endless_messages_are_read_in_bounded_time(message):
    assert seen(missing("ErrImagePull", message), failed(message, count=2)).state == "pending"


UNKNOWN = {
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
    "exitCode": 137,
}


def test_a_pod_that_was_deleted_while_it_waited_has_not_been_killed():
    """The kubelet gives such a container an end with code 137; the row keeps the reason for which it waited."""
    status = {"image": IMAGE, "imageID": "", "state": {"terminated": UNKNOWN}}
    found = seen(read(phase="Failed", containerStatuses=[status]))
    assert (found.state, found.is_alive) == ("absent", False)
    ran = seen(read(phase="Failed", containerStatuses=[{**status, "containerID": "containerd://6b4e"}]))
    assert (ran.state, ran.signal) == ("failed", 9)
    evicted = seen(read(phase="Failed", reason="Evicted", message="full", containerStatuses=[status]))
    assert evicted.state == "failed" and evicted.reason.startswith("evicted")
