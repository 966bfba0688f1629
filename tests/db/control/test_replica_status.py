"""Replica states from the cluster are stored in batches, once, and an older view never overwrites a newer one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.control import replica_status, watcher
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ReplicaSeen, ReplicaState, ReplicaUpdate
from jobs.models import Attempt, Job, Rank, Replica
from tests.support.builders import Clock
from tests.support.locks import in_thread, until_waiting
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db
RUNNING, PENDING, FAILED = ReplicaState.RUNNING, ReplicaState.PENDING, ReplicaState.FAILED


@pytest.fixture
def job(lab):
    """Launched, but no replica runs yet."""
    lab.cluster.start_seconds = 1e9
    return lab.running()


def look(job: Job, index: int, state: ReplicaState, *, version: int = 0, attempt: int = 1, **seen) -> ReplicaUpdate:
    return ReplicaUpdate(job.run, attempt, ReplicaSeen("worker", index, state, version=version, **seen))


def write(*news: ReplicaUpdate, at=None) -> set[int]:
    return set(replica_status.write(news, cluster="local", now=at or timezone.now()).complete)


def states(job: Job) -> list[str]:
    return list(Replica.objects.filter(job=job, attempt=1).order_by("index").values_list("state", flat=True))


def test_a_job_is_reported_complete_with_its_last_replica(job):
    assert write(look(job, 0, RUNNING, version=5, node="n1")) == set()
    assert states(job) == ["running", "pending"]
    assert write(look(job, 1, RUNNING, version=6)) == {job.pk}
    row = Replica.objects.get(job=job, index=0)
    assert (row.node, row.seen_version, row.started_at is not None, row.ended_at) == ("n1", 5, True, None)


def test_updates_of_one_or_many_jobs_take_one_statement(job, lab):
    other = lab.running()
    for number, jobs in enumerate(([job], [job, other])):
        news = [look(one, index, PENDING, reason=f"{number}") for one in jobs for index in (0, 1)]
        with CaptureQueriesContext(connection) as asked:
            write(*news)
        assert len(asked) == 1


def test_what_was_seen_elsewhere_than_the_attempt_was_made_changes_nothing(job):
    """Whoever may create pods in another namespace can give them the names and labels of this job's."""
    forged = look(job, 0, FAILED, version=9, reason="by somebody else")
    Attempt.objects.filter(job=job).update(namespace="ours")
    write(replace(forged, namespace="theirs"))
    replica_status.write([replace(forged, namespace="ours")], cluster="another", now=timezone.now())
    assert states(job) == ["pending", "pending"]
    write(replace(look(job, 0, RUNNING, version=9), namespace="ours"))
    assert states(job) == ["running", "pending"]
    Replica.objects.filter(job=job).update(launch=None)
    Attempt.objects.filter(job=job).delete()  # as of an attempt that a process of an earlier release launched
    write(replace(look(job, 1, RUNNING, version=9), namespace="ours"))
    assert states(job) == ["running", "running"]


def test_an_older_update_does_not_overwrite_a_newer_one(job):
    write(look(job, 0, RUNNING, version=7))
    write(look(job, 0, PENDING, version=6, reason="no place"))
    assert states(job)[0] == "running"
    write(look(job, 0, FAILED, version=8, exit_code=3))
    row = Replica.objects.get(job=job, index=0)
    assert (row.state, row.exit_code, row.ended_at is not None) == ("failed", 3, True)


@pytest.mark.parametrize(
    "ending",
    [
        {"exit_code": 99999999999999}, {"exit_code": "abc"}, {"exit_code": True}, {"exit_code": float("inf")}, {"exit_code": {"a": 1}},
        {"exit_code": 1, "signal": 2**40}, {"reason": "a\0b"}, {"reason": "\ud800"}, {"reason": "x" * 7_000_000},
    ],
    ids=lambda ending: repr(ending)[:40],
)  # fmt: skip
def test_any_exit_status_reported_by_a_replica_can_be_stored(job, ending):
    """The job itself may write its status file; an unstorable value would keep the job from being ended."""
    write(look(job, 0, RUNNING, **ending))
    row = Replica.objects.get(job=job, index=0)
    assert (row.state, row.exit_code in (None, 1), row.signal) == ("running", True, None)
    assert len(row.reason) <= 4000


def test_versions_that_restart_are_accepted_after_a_while(job):
    """A cluster restored from a backup continues counting from where the backup was."""
    write(look(job, 0, RUNNING, version=700))
    at = timezone.now()
    write(look(job, 0, FAILED, version=5), at=at + timedelta(seconds=replica_status.OLDEST_SECONDS - 5))
    assert states(job)[0] == "running"
    write(look(job, 0, FAILED, version=5), at=at + timedelta(seconds=replica_status.OLDEST_SECONDS + 5))
    assert states(job)[0] == "failed"


def test_a_visit_with_a_stale_view_keeps_the_row_of_the_watcher(job, lab):
    write(look(job, 0, RUNNING, version=7))
    stale = ReplicaSeen("worker", 0, PENDING, version=6)
    assert not replica_status.record(job.pk, 1, [stale], now=timezone.now())
    assert states(job)[0] == "running"


def test_updates_that_are_not_of_this_attempt_are_ignored(job, lab):
    strange = ReplicaUpdate(f"{job.pk}-other", 1, ReplicaSeen("worker", 0, RUNNING, version=9))
    nowhere = ReplicaUpdate("999999-abc", 1, ReplicaSeen("worker", 0, RUNNING, version=9))
    write(strange, nowhere, look(job, 0, RUNNING, attempt=2), look(job, 99, RUNNING), look(job, 0, ReplicaState.ABSENT))
    assert states(job) == ["pending", "pending"]


def test_a_job_that_left_the_cluster_is_not_updated(job):
    Job.objects.filter(pk=job.pk).update(phase=Phase.SUSPENDED)
    write(look(job, 0, RUNNING, version=9))
    assert states(job) == ["pending", "pending"]


def test_repeating_an_update_writes_no_row(job):
    write(look(job, 0, RUNNING, version=9))
    before = _row_versions(job)
    write(look(job, 0, RUNNING, version=9), look(job, 0, RUNNING, version=10))
    assert _row_versions(job) == before


def _row_versions(job: Job) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM jobs_replica WHERE job_id = %s ORDER BY id", [job.pk])
        return [row[0] for row in cursor.fetchall()]


def test_updates_that_could_not_be_written_are_retried_with_the_newest_state(job):
    writer = watcher.Writer("local")
    with connection.cursor() as cursor:  # the table is missing, which fails like an unreachable database
        cursor.execute("SAVEPOINT away")
        cursor.execute("ALTER TABLE jobs_replica RENAME TO elsewhere")
        with pytest.raises(watcher.DatabaseError):
            writer.take([look(job, 0, PENDING, version=3), look(job, 1, RUNNING, version=4)])
        cursor.execute("ROLLBACK TO SAVEPOINT away")
    writer.take([look(job, 0, RUNNING, version=5)])
    assert states(job) == ["running", "running"]


def test_the_writer_keeps_poking_a_job_that_should_run_however_busy_others_are(job, lab, monkeypatch):
    """A visit may have observed a moment too early, and nothing else would trigger another."""
    rung, clock, other = [], Clock(), lab.running()
    monkeypatch.setattr(watcher.doorbell, "poke_now", lambda task, job: rung.append(job))
    writer = watcher.Writer("local", clock.seconds)
    writer.take([look(job, 0, RUNNING), look(job, 1, RUNNING)])
    rung.clear()
    for number in range(10):  # never idle for a whole interval
        clock.advance(watcher.AGAIN_SECONDS / 4)
        writer.take([look(other, 0, PENDING, reason=f"{number}")])
    assert 2 <= rung.count(job.pk) <= 3
    Job.objects.filter(pk=job.pk).update(phase=Phase.RUNNING)
    rung.clear()
    for _ in range(10):
        clock.advance(watcher.AGAIN_SECONDS)
        writer.take([])
    assert rung == []


@pytest.mark.django_db(transaction=True)
def test_a_concurrent_visit_does_not_hide_the_last_replica(job, monkeypatch):
    """Each writes one of the two; the statement that waited for the visit's lock still sees the rows from before it."""
    rung, clock = [], Clock()
    monkeypatch.setattr(watcher.doorbell, "poke_now", lambda task, job: rung.append(job))
    writer = watcher.Writer("local", clock.seconds)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)
        writing = in_thread(lambda: writer.take([look(job, 0, RUNNING, version=5), look(job, 1, RUNNING, version=6)]))
        until_waiting()
        replica_status.record(job.pk, 1, [ReplicaSeen("worker", 0, RUNNING, version=5)], now=timezone.now())
    writing.join(PATIENCE_SECONDS)
    assert (states(job), rung) == (["running", "running"], [])
    clock.advance(watcher.AGAIN_SECONDS * 1.5)
    writer.take([])
    assert rung == [job.pk]


def test_ranks_of_a_new_attempt_start_with_the_defaults_of_the_model(job):
    found = list(Rank.objects.filter(job=job).order_by("rank"))
    assert [(one.replica.index, one.rank, one.local_rank) for one in found] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 2, 0),
        (1, 3, 1),
    ]
    begun = Rank()
    for field in Rank._meta.concrete_fields:
        if field.name not in ("id", "replica", "job", "attempt", "rank", "local_rank"):
            assert {getattr(one, field.attname) for one in found} == {getattr(begun, field.attname)}, field.name
