"""Several clusters in one installation: jobs run in their queue's cluster, and a change in one rings only its own jobs."""

import threading

import pytest
from django.utils import timezone

from jobs import clusters, services
from jobs.control import watcher
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from rig.world import abandon, settle
from tests.cluster.conftest import TOLERATIONS
from tests.support.patience import until

KIND = "jobs.clusters.kubernetes.KubernetesCluster"


@pytest.fixture
def both(place, settings, people, team):
    """Two namespaces as two clusters of the settings, a queue on each."""
    other = f"{place.namespace}-b"
    kubeconfigs = {place.namespace: place.kubeconfig, other: settle(place.plane, other)}
    settings.CLUSTERS = {
        name: {"BACKEND": KIND, "OPTIONS": {
            "KUBECONFIG": str(path), "NAMESPACE": name, "IMAGE": "x:1", "CONTROL_URL": "http://muster.test",
            "TOLERATIONS": TOLERATIONS, "agent": place.agent,
        }} for name, path in kubeconfigs.items()
    }  # fmt: skip
    yield [Queue.objects.create(name=f"q{number}", team=team, cluster=name, nominal=8, resource="gpu", gpus_per_node=8)
           for number, name in enumerate(kubeconfigs)]  # fmt: skip
    place.clusters += [clusters.get(name) for name in kubeconfigs]
    abandon(place.admin, other)


def pods_in(place, namespace: str) -> list[str]:
    items = place.admin.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    return sorted(one["metadata"]["name"] for one in items if "deletionTimestamp" not in one["metadata"])


def advance(job: Job, *phases: Phase) -> Job:
    def there() -> Job | None:
        schedule()
        visit(job.pk, store=DjangoStore(), clusters=clusters.get, clock=timezone.now, owner="test")
        job.refresh_from_db()
        return job if job.phase in phases else None

    return until(there)


def test_jobs_of_each_queue_run_in_its_own_cluster(place, both, people):
    sent = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 8}
    first, second = (services.submit(user=people.owner, queue=queue, sent=sent)[0] for queue in both)
    for job in (first, second):
        advance(job, Phase.RUNNING)
    for job, queue in ((first, both[0]), (second, both[1])):
        assert pods_in(place, queue.cluster) == [f"{job.run}-1-worker-0"]
    services.cancel(job=first, by=people.owner)
    advance(first, Phase.CANCELLED)
    assert pods_in(place, both[0].cluster) == [] and len(pods_in(place, both[1].cluster)) == 1
    assert advance(second, Phase.RUNNING, Phase.FAILED).phase == Phase.RUNNING


def test_a_change_in_one_cluster_rings_its_own_job_while_another_is_unreachable(
    place, both, people, settings, monkeypatch
):
    """One watcher for all clusters: an unreachable one does not block the others."""
    sent = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 8}
    job = advance(services.submit(user=people.owner, queue=both[1], sent=sent)[0], Phase.RUNNING)
    away = {**settings.CLUSTERS[both[0].cluster]["OPTIONS"], "KUBECONFIG": "/nowhere/kubeconfig"}
    settings.CLUSTERS = {**settings.CLUSTERS, "away": {"BACKEND": KIND, "OPTIONS": away}}
    place.clusters.append(clusters.get("away"))
    rung = []
    monkeypatch.setattr("common.signals.doorbell.poke_now", lambda task, *args: rung.append(args))
    stop = threading.Event()
    watching = threading.Thread(target=watcher.watch, args=(stop,), daemon=True)
    watching.start()
    try:
        queue = clusters.get(both[1].cluster).queue
        until(lambda: queue.is_asked_for_pods and queue.is_asked_for_runs)
        path = f"/api/v1/namespaces/{both[1].cluster}/pods/{job.run}-1-worker-0"
        assert place.admin.delete(path).status_code in (200, 202)
        until(lambda: rung)
        assert set(rung) == {(job.pk,)}
    finally:
        stop.set()
        watching.join(30)
