"""Whole lives of jobs: real rows, the real reconciler, a real API server. Only the pods run no processes."""

import base64

import pytest
from django.utils import timezone

from jobs import services
from jobs.clusters.kubernetes.build import labels
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import Phase
from jobs.ingest import agent_tokens
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.scheduling.scheduler import schedule
from tests.cluster.api.test_kubernetes import foreign_pod
from tests.cluster.conftest import REF, TOLERATIONS, NamespaceFixture, expected
from tests.support.patience import until


class Life:
    """Visits a job as the tasks process does, with the real clock."""

    def __init__(self, place: NamespaceFixture, queue, user, **options):
        self.place, self.queue, self.user = place, queue, user
        self.cluster = place.cluster(**options)

    def submit(self, **sent) -> Job:
        return self.until(self.submit_only(**sent), Phase.RUNNING, Phase.FAILED)

    def submit_only(self, **sent) -> Job:
        sent = {"command": "torchrun train.py", "nodes": 2, "nproc_per_node": 4, "max_retries": 0, **sent}
        return services.submit(user=self.user, queue=self.queue, sent=sent)[0]

    def until(self, job: Job, *phases: Phase) -> Job:
        def there() -> Job | None:
            schedule()
            visit(job.pk, store=DjangoStore(), clusters=lambda _: self.cluster, clock=timezone.now, owner="test")
            job.refresh_from_db()
            return job if job.phase in phases else None

        return until(there)

    def pod(self, job: Job, index: int) -> str:
        return labels.pod(job.run, job.attempt, "worker", index)


@pytest.fixture
def life(place, people, team):
    from queues.models import Queue

    queue = Queue.objects.create(
        name="gpus", team=team, cluster="local", nominal=32, resource="gpu", gpus_per_node=8
    )  # fmt: skip
    return Life(place, queue, people.owner)


def test_a_job_runs_on_gpus_and_succeeds(life, place):
    job = life.submit()
    (container,) = place.pods()[life.pod(job, 1)]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert set(Replica.objects.filter(job=job).values_list("name", flat=True)) == set(place.pods())
    for index in range(2):
        place.annotate(life.pod(job, index), exit_code="0")
    life.until(job, Phase.SUCCEEDED)
    assert place.pods() == {}


def test_a_failing_replica_ends_the_gang_and_is_named(life, place):
    job = life.submit()
    place.annotate(life.pod(job, 1), exit_code="3")
    life.until(job, Phase.FAILED)
    assert "worker-1 exited with code 3" in job.message
    assert place.pods() == {}


def test_a_retry_is_a_new_attempt_of_the_whole_gang(life, place):
    job = life.submit(max_retries=1)
    place.annotate(life.pod(job, 0), exit_code="1")
    until(lambda: life.until(job, *Phase).attempt == 2)
    life.until(job, Phase.RUNNING)
    assert sorted(place.pods()) == [life.pod(job, 0), life.pod(job, 1)]


def test_a_manually_deleted_pod_fails_the_attempt(life, place):
    job = life.submit()
    place.remove("pods", life.pod(job, 1))
    life.until(job, Phase.FAILED)
    assert "worker-1 vanished" in job.message


def test_a_deleted_pod_of_an_elastic_job_is_replaced_within_the_attempt(life, place):
    job = life.submit(nodes=3, min_nodes=2, nproc_per_node=1)
    first = {name: pod["metadata"]["uid"] for name, pod in place.pods().items()}
    place.remove("pods", life.pod(job, 2))
    row = job.replicas.get(index=2)

    def is_back() -> bool:
        life.until(job, *Phase)
        row.refresh_from_db()
        return (row.incarnation, row.state) == (1, "running")

    until(is_back)
    assert (job.phase, job.attempt) == (Phase.RUNNING, 1)
    now = place.pods()
    assert {name: now[name]["metadata"]["uid"] for name in first if name in now} == {
        name: uid for name, uid in first.items() if name != life.pod(job, 2)
    }  # the other pods are unchanged
    back = now[row.name]
    env = {one["name"]: one["value"] for one in back["spec"]["containers"][0]["env"]}
    assert env["PET_NNODES"] == "2:3"
    assert env["PET_LOCAL_ADDR"].startswith(f"{row.name}.m-{job.run}-1.")
    assert env["PET_RDZV_ENDPOINT"].startswith(f"{job.run}-1-worker-0.m-{job.run}-1.")
    told = next(one["secret"] for one in back["spec"]["volumes"] if one["name"] == "told")
    token = place.admin.get(place.path("secrets", told["secretName"])).json()["data"]["worker-2"]
    assert agent_tokens.read(base64.b64decode(token).decode()).incarnation == 1
    for name in now:
        place.annotate(name, exit_code="0")
    life.until(job, Phase.SUCCEEDED)
    assert place.pods() == {}


def test_an_elastic_job_below_its_minimum_ends_with_the_loss_and_the_minimum(life, place):
    job = life.submit(nodes=3, min_nodes=2, nproc_per_node=1)
    for index in (1, 2):
        place.remove("pods", life.pod(job, index))
    until(lambda: set(place.pods()) == {life.pod(job, 0)})
    until(
        lambda: (
            {one.state for one in life.cluster.observe(AttemptRef(job.run, 1), expected(3)).replicas}
            == {"running", "absent"}
        )
    )
    life.until(job, Phase.FAILED)
    assert "worker-1 vanished" in job.message
    assert "1 of at least 2 replicas are left" in job.message


def test_suspend_removes_all_pods_and_resume_starts_another_attempt(life, place):
    job = life.submit()
    services.suspend(job=job, by=life.user)
    life.until(job, Phase.SUSPENDED)
    assert place.pods() == {}
    services.resume(job=job, by=life.user)
    life.until(job, Phase.RUNNING)
    assert job.attempt == 2 and len(place.pods()) == 2


def test_cancel_leaves_nothing_but_the_tombstone(life, place):
    job = life.submit()
    services.cancel(job=job, by=life.user)
    life.until(job, Phase.CANCELLED)
    assert place.pods() == {}
    (stone,) = place.admin.get(place.path("services")).json()["items"]
    assert stone["metadata"]["labels"][labels.SEALED] == "true"
    until(lambda: place.admin.get(place.path("secrets")).json()["items"] == [])


def test_a_job_whose_pod_the_scheduler_preempts_waits_again_and_uses_no_retry(life, place):
    job = life.submit()
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "said"}
    path = place.path("pods", life.pod(job, 1))  # as the scheduler does: first the condition, then the deletion
    answer = place.admin.patch(
        f"{path}/status", json={"status": {"conditions": [taken]}}, headers={"Content-Type": "application/strategic-merge-patch+json"}
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert place.admin.delete(path).status_code == 200
    life.until(job, Phase.QUEUED, Phase.ADMITTED, Phase.FAILED)
    assert (job.phase != Phase.FAILED, job.failures) == (True, 0)
    life.until(job, Phase.RUNNING, Phase.FAILED)
    assert (job.phase, job.attempt, job.failures) == (Phase.RUNNING, 2, 0)
    before = Attempt.objects.get(job=job, number=1)
    assert (before.reason, before.outcome) == ("preempted", "queued") and "took its place" in before.message


def quota_of_pods(place, count: int) -> None:
    place.make("resourcequotas", {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(count)}}})
    until(lambda: place.admin.get(place.path("resourcequotas", "few")).json().get("status", {}).get("hard"))


def test_a_job_waits_while_others_use_up_the_quota_of_its_namespace(life, place):
    """A second wall that the platform makes; pods that are ending count in it until they are gone."""
    place.make("pods", foreign_pod("other", {}))
    quota_of_pods(place, 2)
    until(lambda: place.admin.get(place.path("resourcequotas", "few")).json()["status"]["used"]["pods"] == "1")
    job = life.until(life.submit_only(), Phase.STARTING, Phase.FAILED)
    notes = JobEvent.objects.filter(job=job, message__contains="exceeded quota: few")
    until(lambda: life.until(job, Phase.STARTING, Phase.FAILED) and notes.exists())
    assert "waits for the quota of its namespace" in notes.get().message
    assert job.phase == Phase.STARTING and len(place.pods()) == 2, "the other, and the first of its own"
    place.remove("pods", "other")
    life.until(job, Phase.RUNNING, Phase.FAILED)
    assert (job.phase, job.failures, job.attempt) == (Phase.RUNNING, 0, 1)


@pytest.mark.parametrize("count", [0, 1], ids=["of one pod", "of both pods together"])
def test_a_refusal_of_the_cluster_fails_the_job_with_its_message(life, place, count):
    """A quota that is too small for the attempt is one: waiting would help nobody."""
    quota_of_pods(place, count)
    job = life.until(life.submit_only(), Phase.STOPPING, Phase.FAILED)
    life.until(job, Phase.FAILED)
    assert "exceeded quota: few" in job.message
    assert place.pods() == {}


def test_the_adapter_is_created_from_settings(place, settings):
    from jobs import clusters

    options = {
        "KUBECONFIG": str(place.kubeconfig), "NAMESPACE": place.namespace, "IMAGE": "x:1",
        "CONTROL_URL": "http://muster.test", "TOLERATIONS": TOLERATIONS,
    }  # fmt: skip
    settings.CLUSTERS = {place.namespace: {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": options}}
    made = clusters.get(place.namespace)
    place.clusters.append(made)
    assert clusters.backend(place.namespace).MOUNTS
    assert made.observe(REF, [("worker", 0)]).replicas[0].state == "absent"
