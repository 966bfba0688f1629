"""What keeps jobs going when doorbells, Redis or a whole process are lost: short leases, renewal, and the sweeper."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import LeaseLost
from jobs.control import lease_renewal, sweeper
from jobs.control.store import DjangoStore
from jobs.core.lease import LEASE_SECONDS
from jobs.core.lifecycle import Phase, Step
from jobs.core.verdict import Seen
from jobs.models import Job
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(lab):
    return lab.submit()


@pytest.fixture
def held(job):
    held = DjangoStore().take(job.pk, owner="me", now=timezone.now())
    yield held
    lease_renewal.drop(held.job, held.token)


def test_renewing_a_lease_extends_it_and_the_due_time(job, held):
    before = Job.objects.get(pk=job.pk)
    assert lease_renewal.renew(held.job, held.token)
    after = Job.objects.get(pk=job.pk)
    assert after.lease_expires_at > before.lease_expires_at
    assert after.next_reconcile_at == after.lease_expires_at


def test_a_request_for_a_visit_survives_a_renewal(job, held):
    assert DjangoStore().take(job.pk, owner="somebody else", now=timezone.now()) is None
    knocked = Job.objects.get(pk=job.pk).next_reconcile_at
    assert lease_renewal.renew(held.job, held.token)
    assert Job.objects.get(pk=job.pk).next_reconcile_at == knocked


def test_a_lease_taken_over_by_another_owner_is_not_renewed(job, held):
    later = timezone.now() + timedelta(seconds=LEASE_SECONDS + 1)
    other = DjangoStore().take(job.pk, owner="somebody else", now=later)
    assert not lease_renewal.renew(held.job, held.token)
    with pytest.raises(LeaseLost):
        DjangoStore().record(held, seen=Seen(), step=Step(Phase.CANCELLED), now=later)
    DjangoStore().release(other, due=None)


def test_a_released_lease_is_not_renewed(job, held):
    DjangoStore().release(held, due=None)
    assert not lease_renewal.renew(held.job, held.token)


@pytest.mark.django_db(transaction=True)
def test_a_visit_longer_than_a_lease_keeps_it(job):
    """With the real renewal thread, in real time."""
    held = DjangoStore().take(job.pk, owner="slow", now=timezone.now())
    first = Job.objects.get(pk=job.pk).lease_expires_at
    end = time.monotonic() + PATIENCE_SECONDS
    while Job.objects.get(pk=job.pk).lease_expires_at < first + timedelta(seconds=LEASE_SECONDS):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert DjangoStore().take(job.pk, owner="other", now=first + timedelta(seconds=0.1)) is None
    DjangoStore().release(held, due=None)


def test_the_sweeper_schedules_and_visits_overdue_jobs(lab, job, monkeypatch):
    monkeypatch.setattr(sweeper.clusters, "get", lambda alias: lab.cluster)
    monkeypatch.setattr(sweeper.last_run, "scheduled_at", time.monotonic() - 60)
    assert sweeper.sweep(timezone.now()) == 0  # admitted just now, so not overdue yet
    job.refresh_from_db()
    assert job.phase == Phase.ADMITTED
    assert sweeper.sweep(timezone.now() + timedelta(seconds=2)) == 1
    job.refresh_from_db()
    assert job.phase in (Phase.STARTING, Phase.RUNNING)


def test_a_job_that_is_due_just_now_is_left_to_its_doorbell(lab, job):
    now = timezone.now()
    Job.objects.filter(pk=job.pk).update(next_reconcile_at=now)
    assert sweeper.sweep(now) == 0


def test_a_failing_job_does_not_keep_the_sweeper_from_the_others(lab, job, monkeypatch):
    """The cluster of the first job is no longer configured."""
    other = lab.submit()
    late = timezone.now() - timedelta(seconds=9)
    Job.objects.filter(pk__in=[job.pk, other.pk]).update(phase=Phase.ADMITTED, next_reconcile_at=late)
    Job.objects.filter(pk=job.pk).update(next_reconcile_at=late - timedelta(seconds=9))
    clusters = [lambda alias: {}[alias], lambda alias: lab.cluster]
    monkeypatch.setattr(
        sweeper.clusters, "get", lambda alias: clusters.pop(0)(alias) if len(clusters) > 1 else lab.cluster
    )
    assert sweeper.sweep(timezone.now()) == 2
    assert Job.objects.get(pk=other.pk).attempt == 1


def test_queues_are_scheduled_between_long_visits(lab, job, monkeypatch):
    """The first visit takes as long as the scheduling interval."""
    others = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(2)]
    late = timezone.now() - timedelta(seconds=9)
    Job.objects.filter(pk__in=[one.pk for one in others]).update(phase=Phase.ADMITTED, next_reconcile_at=late)
    monkeypatch.setattr(sweeper.last_run, "scheduled_at", time.monotonic())
    phases = []

    def visit(pk, **_):
        phases.append(Job.objects.get(pk=job.pk).phase)
        sweeper.last_run.scheduled_at -= sweeper.SCHEDULE_SECONDS

    monkeypatch.setattr(sweeper, "visit_job", visit)
    assert sweeper.sweep(timezone.now()) == 2
    assert phases == [Phase.QUEUED, Phase.ADMITTED]


def test_beat_of_this_and_the_previous_release_sends_only_known_tasks(settings):
    from controlplane.celery import app

    app.loader.import_default_modules()
    sent = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert "jobs.tick" not in sent
    assert {*sent, "jobs.tick"} <= set(app.tasks)
