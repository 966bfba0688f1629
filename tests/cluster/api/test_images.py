"""Images that do not exist, on a real API server: KWOK writes statuses and Events as a kubelet does."""

from jobs.core.lifecycle import Phase
from tests.cluster.api.test_clock import Later, queue
from tests.support.patience import until

__all__ = ["queue"]
MERGE = {"Content-Type": "application/merge-patch+json"}
# kubernetes/pkg/kubelet/status/status_manager.go, TerminatePod
NEVER_MADE = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}


def end_as_a_kubelet_does(place) -> None:
    """Report the end of pods that are deleted while they wait for their image."""
    for name in place.pods():
        status = {"name": "replica", "image": "rig/not-found", "imageID": "", "ready": False, "restartCount": 0}
        body = {"status": {"phase": "Failed", "containerStatuses": [{**status, "state": {"terminated": NEVER_MADE}}]}}
        answer = place.admin.patch(f"{place.path('pods', name)}/status", headers=MERGE, json=body)
        assert answer.status_code == 200, answer.text


def test_an_image_that_its_registry_does_not_have_ends_the_job_at_once(place, people, queue):
    life = Later(place, queue, people.owner, IMAGE="rig/not-found")
    job = life.submit_only(start_timeout_seconds=3600, max_retries=3)
    until(lambda: life.until(job, *Phase).phase == Phase.STARTING and len(place.pods()) == 2)
    for name in place.pods():
        place.annotate(name, hang="true")
    life.until(job, Phase.STOPPING)
    until(
        lambda: life.until(job, *Phase) and all("deletionTimestamp" in pod["metadata"] for pod in place.pods().values())
    )
    end_as_a_kubelet_does(place)
    until(lambda: {one.state for one in life.cluster.view().pods.everything()} == {"absent"})
    life.until(job, Phase.STOPPING)
    for name in place.pods():
        place.annotate(name, hang=None)
    life.until(job, Phase.FAILED)
    found = job.attempt_failures.get()
    assert (found.kind, found.certainty, found.attempt) == ("image", "sure", 1)
    assert found.headline == job.message
    assert job.message.partition(": ")[0] in ("worker-0", "worker-1")
    assert ": no such image: rig/not-found, by 2 answers of its registry; correct the name, or push it" in job.message
    assert "not retried: another attempt would have the same image" in life.told(job)
    assert {one.state for one in job.replicas.all()} <= {"failed", "pending"} and place.pods() == {}


def test_one_pull_is_no_proof_and_its_reason_is_shown(place, people, queue):
    life = Later(place, queue, people.owner, IMAGE="rig/not-found")
    job = life.submit_only(nodes=1)
    reasons = set[str]()

    def is_proven() -> bool:
        life.until(job, *Phase)
        reasons.update(job.replicas.values_list("reason", flat=True))
        return job.phase not in (Phase.QUEUED, Phase.ADMITTED, Phase.STARTING)

    until(is_proven)
    assert any(one.startswith("the image rig/not-found cannot be pulled (ErrImagePull): rpc error") for one in reasons)
    life.until(job, Phase.FAILED)
