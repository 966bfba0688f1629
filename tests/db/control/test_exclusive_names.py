"""Names by which a cluster's pods are found whatever their job: one running job has one, and the others wait for it."""

import threading

import pytest
from django.db import connection

from accounts.models import Team
from jobs import services
from jobs.core.lifecycle import Phase
from jobs.models import Job
from jobs.scheduling.scheduler import schedule, schedule_queue
from queues.models import Queue

MONARCH = {"framework": "monarch", "command": "python train.py", "nodes": 1, "nproc_per_node": 1}


@pytest.fixture(autouse=True)
def cluster_that_finds_by_name(settings):
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}


def other_queue(queue: Queue, name: str = "other") -> Queue:
    return Queue.objects.create(
        team=Team.objects.get(pk=queue.team_id), name=name, cluster=queue.cluster, resource=queue.resource, nominal=8
    )


@pytest.mark.django_db
def test_a_second_job_with_the_same_mesh_waits_until_the_first_one_is_gone(lab):
    first, second = lab.running(**MONARCH), lab.submit(**MONARCH)
    schedule()
    second.refresh_from_db()
    assert (first.phase, second.phase) == (Phase.RUNNING, Phase.QUEUED)
    assert second.wait_reason.startswith(f"mesh mesh is in use by job {first.pk}, and would be confused with it")
    lab.cluster.finish(first.run, 1, "controller", index=0, exit_code=0)
    lab.visit(first, times=4)
    assert first.phase == Phase.SUCCEEDED
    schedule()
    second.refresh_from_db()
    assert (second.phase, second.wait_reason) == (Phase.ADMITTED, "")


@pytest.mark.django_db
def test_a_mesh_of_another_queue_counts_and_another_name_does_not(lab, people, queue):
    first = lab.running(**MONARCH, more_meshes=["generators=1"])
    beside = other_queue(queue)
    taken, free = (
        services.submit(user=people.owner, queue=beside, sent={**MONARCH, "mesh_name": name})[0]
        for name in ("generators", "evaluators")
    )
    schedule_queue(beside.pk)
    taken.refresh_from_db()
    free.refresh_from_db()
    assert taken.wait_reason.startswith(f"mesh generators is in use by job {first.pk}")
    assert free.phase == Phase.ADMITTED, "a job that waits for a name takes no quota, and those behind it start"


@pytest.mark.django_db
def test_the_plan_names_the_job_that_has_the_mesh(lab, people, queue):
    first = lab.running(**MONARCH)
    assert services.preview(user=people.owner, queue=queue, sent={**MONARCH, "mesh_name": "mine"}).wait_reason == ""
    found = services.preview(user=people.owner, queue=queue, sent=MONARCH)
    assert found.wait_reason.startswith(f"mesh mesh is in use by job {first.pk}")


@pytest.mark.django_db
def test_where_each_job_finds_only_its_own_hosts_meshes_may_have_the_same_name(lab, settings, tmp_path):
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(tmp_path)}}}
    assert [lab.running(**MONARCH).phase for _ in range(2)] == [Phase.RUNNING, Phase.RUNNING]


@pytest.mark.django_db(transaction=True)
def test_schedulers_of_two_queues_give_a_name_to_one_job_only(lab, people, queue):
    queues = [queue, *(other_queue(queue, f"other{number}") for number in range(3))]
    for one in queues:
        services.submit(user=people.owner, queue=one, sent=MONARCH)
    barrier = threading.Barrier(len(queues))
    counts: list[int] = []

    def run(pk: int) -> None:
        barrier.wait()
        counts.append(schedule_queue(pk))
        connection.close()

    threads = [threading.Thread(target=run, args=[one.pk]) for one in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(counts), Job.objects.holding_quota().count()) == (1, 1)
