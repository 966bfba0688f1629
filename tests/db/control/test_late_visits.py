"""A failing visit releases its lease where it can, and raises the original error."""

import logging

import pytest

from common.errors import Unreachable
from jobs.clusters.memory import MemoryCluster
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.attempt_ref import AttemptRef
from jobs.models import Job
from jobs.scheduling.scheduler import schedule

pytestmark = pytest.mark.django_db


class Broken(MemoryCluster):
    """Its `apply` fails with an unexpected exception, after calling `first`."""

    def __init__(self, first=lambda: None):
        super().__init__()
        self.first = first

    def apply(self, plan):
        self.first()
        raise ZeroDivisionError("a bug")


def run(lab, job, cluster) -> None:
    visit(job.pk, store=DjangoStore(), clusters=lambda _: cluster, clock=lab.clock, owner="first")


@pytest.fixture
def job(lab):
    found = lab.submit()
    schedule()
    return found


def test_a_failed_visit_releases_the_lease_and_schedules_a_later_visit(lab, job):
    with pytest.raises(ZeroDivisionError):
        run(lab, job, Broken())
    row = Job.objects.get(pk=job.pk)
    assert (row.lease_owner, row.lease_expires_at) == ("", None)
    assert row.next_reconcile_at > lab.clock()


def test_a_failed_visit_that_lost_its_lease_raises_its_error_and_keeps_the_new_lease(lab, job, caplog):
    def rob() -> None:
        lab.clock.advance(60)
        assert DjangoStore().take(job.pk, owner="second", now=lab.clock())

    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        run(lab, job, Broken(rob))
    assert "this visit was late" in caplog.text
    assert Job.objects.get(pk=job.pk).lease_owner == "second"


def test_a_failing_store_does_not_hide_the_original_error(lab, job, caplog):
    class Away(DjangoStore):
        def release(self, held, *, due):
            raise Unreachable("the database is away")

    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        visit(job.pk, store=Away(), clusters=lambda _: Broken(), clock=lab.clock, owner="first")
    assert "was not given back: the database is away" in caplog.text


def test_the_visit_after_a_crash_during_creation_observes_again_at_once(lab, job):
    """It used to wait five seconds for replicas that already ran: their doorbells had rung before it."""

    class Dies(DjangoStore):
        def record_applied(self, held, *, now):
            raise SystemExit

        def release(self, held, *, due):
            raise AssertionError("a process that is killed releases nothing")

    with pytest.raises(SystemExit):
        visit(job.pk, store=Dies(), clusters=lambda _: lab.cluster, clock=lab.clock, owner="first")
    lab.clock.advance(60)  # the lease has expired, and the replicas run
    lab.cluster.observe(AttemptRef(job.run, 1), ())
    assert lab.visit(job).phase == "running"
