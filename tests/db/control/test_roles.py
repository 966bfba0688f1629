"""A job of two roles in Postgres: rows and ranks of both, quota over both, whose end decides, and the rows of before."""

from dataclasses import replace

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from common.errors import InvalidSpec
from jobs import services
from jobs.core.lifecycle import Phase
from jobs.models import Job, Rank, Replica
from tests.db.control.test_migrations import migrate

TWO_ROLES = {
    "framework": "plain", "command": "python train.py", "nodes": 2, "nproc_per_node": 2, "helper_command": "python serve.py",
    "helpers": 3, "helper_devices": 1,
}  # fmt: skip


@pytest.mark.django_db
def test_rows_and_ranks_of_both_roles_exist_before_anything_is_created(lab):
    job = lab.running(**TWO_ROLES)
    assert job.phase == Phase.RUNNING
    rows = Replica.objects.filter(job=job, attempt=1).order_by("id").values_list("role", "index", "ranks__rank")
    assert list(rows) == [("worker", 0, 0), ("worker", 1, 1), ("helper", 0, 2), ("helper", 1, 3), ("helper", 2, 4)]
    assert {one.rsplit("-", 2)[1] for one in Replica.objects.values_list("name", flat=True)} == {"worker", "helper"}
    assert (job.slots, job.world_size, job.replica_count, job.shape) == (7, 5, 5, "2 worker + 3 helper = 5 ranks")


@pytest.mark.django_db
def test_the_workers_success_completes_the_job_and_ends_the_helpers(lab):
    job = lab.finish(lab.running(**TWO_ROLES), 0, 0)
    assert job.phase == Phase.SUCCEEDED
    assert lab.cluster.alive(job.run) == []


@pytest.mark.django_db
def test_a_helper_that_fails_fails_the_attempt_by_its_name(lab):
    job = lab.running(**TWO_ROLES)
    lab.cluster.finish(job.run, 1, "helper", index=2, exit_code=7)
    lab.visit(job, times=4)
    assert (job.phase, "helper-2 exited with code 7" in job.message) == (Phase.FAILED, True)


@pytest.mark.django_db
def test_a_helper_that_is_done_first_does_not_end_the_job(lab):
    job = lab.running(**TWO_ROLES)
    lab.cluster.finish(job.run, 1, "helper", index=0, exit_code=0)
    lab.visit(job, times=3)
    assert job.phase == Phase.RUNNING


@pytest.mark.django_db
def test_both_roles_count_against_the_quota(lab):
    with pytest.raises(InvalidSpec, match="2 x 2 and 100 x 1 slots need 104"):
        lab.submit(**{**TWO_ROLES, "helpers": 100})


@pytest.mark.django_db
def test_a_copy_of_a_job_has_the_same_roles(lab, people):
    job = lab.submit(**TWO_ROLES)
    again = services.resubmit(job=job, by=people.owner)[0]
    assert (again.spec["options"], again.roles, again.slots) == (job.spec["options"], job.roles, job.slots)


@pytest.mark.django_db
def test_a_running_job_that_a_release_before_submitted_goes_on(lab):
    """Its row has no roles, and that release's processes may still write such rows while the migration is done."""
    job = lab.submit(nodes=3, min_nodes=2)
    Job.objects.filter(pk=job.pk).update(roles=None)
    job = Job.objects.get(pk=job.pk)
    (worker,) = job.role_views
    assert (worker.replicas, worker.processes, worker.least, worker.anchor, job.is_elastic) == (3, 2, 2, 0, True)
    assert job.world_size == 6
    from jobs.scheduling.scheduler import schedule

    schedule()
    lab.visit(job, times=3)
    assert job.phase == Phase.RUNNING
    assert Rank.objects.filter(job=job).count() == 6
    assert job.roles == [worker.to_json()]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("nodes", "least"), [(2, None), (4, 2)])
def test_the_migration_fills_in_the_roles_of_existing_jobs(lab, nodes, least):
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    job = lab.submit(nodes=nodes, min_nodes=least)
    try:
        migrate([("jobs", "0015_cancel_now")])
        migrate(newest)
        filled = Job.objects.get(pk=job.pk)
        assert filled.role_views == tuple(replace(one, slots=None) for one in job.role_views)
        assert filled.created_at <= timezone.now()
    finally:
        migrate(newest)
