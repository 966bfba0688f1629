"""Replicas that reappear after their job is done with them are ended, and no others."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import clusters, services
from jobs.control import orphans
from jobs.control.store import plan_of
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.logs import removal
from jobs.models import Job

LATER = timedelta(minutes=1)


@pytest.fixture
def swept(lab, settings, monkeypatch):
    """Sweeps the lab's cluster as of a minute from now; returns how many strays it found."""
    monkeypatch.setattr(clusters, "get", lambda alias: lab.cluster)
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}
    return lambda: orphans.sweep("local", now=timezone.now() + LATER)


@pytest.fixture
def restore(lab):
    """Restores the cluster to before this attempt ended: its replicas are back, and its seal is gone."""

    def restore(job: Job, attempt: int) -> None:
        lab.cluster.forget(job.run, attempt)
        lab.cluster.apply(plan_of(job, attempt))

    return restore


@pytest.mark.parametrize("phase", Phase)
def test_an_attempt_is_a_stray_once_its_job_has_left_it_for_good(phase):
    assert orphans.is_stray(2, current=2, phase=phase) is (phase not in ON_CLUSTER)
    assert orphans.is_stray(1, current=2, phase=phase)
    assert not orphans.is_stray(3, current=2, phase=phase)


def test_an_attempt_of_a_finished_job_is_ended_again(lab, swept, restore):
    job = lab.running()
    lab.finish(job, 0, 0)
    assert job.phase == Phase.SUCCEEDED and swept() == 0
    restore(job, 1)
    assert len(lab.cluster.alive(job.run)) == 2
    assert swept() == 1 and lab.cluster.alive(job.run) == [] and swept() == 0
    job.refresh_from_db()
    assert job.phase == Phase.SUCCEEDED


def test_an_attempt_of_a_job_that_was_removed_is_ended(lab, swept, restore):
    job = lab.running(ttl_seconds=1)
    lab.finish(job, 0, 0)
    restore(job, 1)
    removal.remove_due(now=timezone.now() + timedelta(days=1))
    assert not Job.objects.filter(pk=job.pk).exists()
    assert swept() == 1 and lab.cluster.alive(job.run) == [] and swept() == 0


def test_an_earlier_attempt_of_a_running_job_is_ended_and_the_current_one_stays(lab, swept, restore):
    job = lab.running(max_retries=1)
    lab.finish(job, 1)
    lab.visit(job, times=4)
    assert (job.phase, job.attempt) == (Phase.RUNNING, 2)
    restore(job, 1)
    assert swept() == 1
    assert {attempt for attempt, *_ in lab.cluster.alive(job.run)} == {2}


def test_reappeared_replicas_of_a_suspended_job_are_ended(lab, swept, restore):
    job = lab.running()
    services.suspend(job=job, by=lab.user)
    lab.visit(job, times=4)
    assert job.phase == Phase.SUSPENDED
    restore(job, 1)
    assert swept() == 1 and lab.cluster.alive(job.run) == []


def test_replicas_without_a_matching_job_are_left_alone(lab, swept, restore):
    job = lab.running()
    lab.finish(job, 0, 0)
    restore(job, 1)
    Job.objects.filter(pk=job.pk).update(uid="other")
    assert swept() == 0 and len(lab.cluster.alive(job.run)) == 2


def test_an_attempt_that_ended_a_moment_ago_is_left_alone(lab, swept, restore):
    job = lab.running()
    lab.finish(job, 0, 0)
    restore(job, 1)
    assert orphans.sweep("local", now=job.phase_since) == 0


def test_an_unreachable_cluster_does_not_fail_the_sweep(lab, swept, restore, settings):
    job = lab.running()
    lab.finish(job, 0, 0)
    restore(job, 1)
    Job.objects.update(phase_since=timezone.now() - LATER)
    lab.cluster.is_reachable = False
    assert orphans.sweep_all() == 0
    lab.cluster.is_reachable = True
    assert orphans.sweep_all() == 1
