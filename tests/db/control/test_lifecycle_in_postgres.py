"""The real store, scheduler and services on Postgres, with an in-memory cluster."""

import threading
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from common.errors import Conflict, InvalidInput, LeaseLost, NotAllowed
from jobs import services
from jobs.analysis import failures
from jobs.control import replica_status
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase, Step
from jobs.core.verdict import ReplicaSeen, ReplicaState, ReplicaUpdate, Seen
from jobs.models import Job, JobEvent, Rank, Replica
from jobs.scheduling.scheduler import schedule, schedule_queue

pytestmark = pytest.mark.django_db


def phases(job) -> list[str]:
    return list(job.events.filter(kind="step").values_list("phase", flat=True))


def test_a_job_goes_from_submit_to_success(lab):
    job = lab.running()
    assert job.phase == Phase.RUNNING
    assert Rank.objects.filter(job=job, attempt=1).count() == 4
    lab.finish(job, 0, 0)
    assert phases(job) == ["queued", "admitted", "starting", "running", "stopping", "succeeded"]
    assert job.finished_at
    assert job.next_reconcile_at is None


def test_a_failed_attempt_is_retried_while_the_budget_allows(lab):
    job = lab.running(max_retries=1)
    lab.finish(job, 1)
    assert (job.phase, job.attempt, job.failures) == (Phase.RUNNING, 2, 1)
    lab.finish(job, 1)
    assert (job.phase, job.attempt, job.failures) == (Phase.FAILED, 2, 2)
    assert "worker-0 exited with code 1" in job.message


@pytest.mark.parametrize(
    ("rules", "phase", "note"),
    [
        ({"retry_on": [3]}, Phase.RUNNING, ""),
        ({"retry_on": [75]}, Phase.FAILED, "not retried: exit code 3 is not in retry_on"),
        ({"never_retry_on": [3]}, Phase.FAILED, "not retried: exit code 3 is in never_retry_on"),
    ],
)
def test_the_exit_code_of_the_first_rank_to_fail_decides_about_a_retry(lab, rules, phase, note):
    """The launcher itself ends with code 1, whatever code its rank had."""
    job = lab.running(max_retries=2, **rules)
    Rank.objects.filter(job=job, attempt=1, rank=0).update(state="failed", exit_code=3, ended_at=timezone.now())
    lab.finish(job, 1)
    assert (job.phase, job.failures) == (phase, 1)
    assert [one.message for one in job.events.filter(kind="note")] == ([note] if note else [])
    assert job.message.startswith("rank 0 exited with code 3") or phase == Phase.RUNNING


def test_a_lost_replica_is_retried_whatever_the_exit_codes_are(lab):
    job = lab.running(max_retries=2, retry_on=[75])
    lab.cluster.lose(job.run, 1, "worker", index=0)
    lab.visit(job, times=4)
    assert (job.phase, job.attempt, job.failures) == (Phase.RUNNING, 2, 1)


@pytest.mark.parametrize("end", [{}, {"state": "failed", "signal": 15}, {"state": "failed", "exit_code": 143}])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_replica_that_is_gone_is_named_also_where_stopping_the_others_makes_them_fail(lab, lost, end):
    job = lab.running()
    job.replicas.filter(index=lost).update(**end)
    lab.cluster.lose(job.run, 1, "worker", index=lost)
    lab.visit(job)
    assert job.phase == Phase.STOPPING
    other = 1 - lost
    lab.cluster.finish(job.run, 1, "worker", index=other, exit_code=1)  # torchrun's own exit code after a SIGTERM
    lab.visit(job, times=3)
    assert (job.phase, job.message) == (Phase.FAILED, f"worker-{lost} vanished: its process or pod is gone")
    failure = failures.first_failure(job)
    assert (failure.replica, failure.kind) == (f"worker-{lost}", "node_lost")
    assert job.replicas.get(index=lost).state == "lost"


def test_what_the_watcher_still_had_to_say_of_a_replica_that_is_gone_changes_nothing(lab):
    job = lab.running()
    lab.cluster.lose(job.run, 1, "worker", index=1)
    lab.visit(job)
    late = ReplicaSeen("worker", 1, ReplicaState.RUNNING, is_alive=True, version=10**9)
    replica_status.write([ReplicaUpdate(job.run, 1, late)], cluster="local", now=lab.clock())
    assert job.replicas.get(index=1).state == "lost"
    lab.visit(job, times=3)
    assert failures.first_failure(job).replica == "worker-1"


def test_a_replica_that_had_ended_by_itself_is_not_called_lost(lab):
    job = lab.running()
    job.replicas.filter(index=1).update(state="failed", exit_code=3)
    lab.cluster.lose(job.run, 1, "worker", index=1)
    lab.visit(job, times=3)
    assert (job.phase, job.message) == (Phase.FAILED, "worker-1 exited with code 3")


def test_suspend_releases_the_quota_and_resume_starts_a_new_attempt(lab, people):
    job = lab.running()
    services.suspend(job=job, by=people.owner)
    lab.visit(job, times=3)
    assert (job.phase, job.is_on_quota) == (Phase.SUSPENDED, False)
    assert lab.cluster.alive(job.run) == []
    services.resume(job=job, by=people.teammate)
    lab.visit(job)
    schedule()
    lab.visit(job, times=3)
    assert (job.phase, job.attempt, job.failures) == (Phase.RUNNING, 2, 0)


@pytest.mark.parametrize("phase", ["queued", "admitted", "running", "suspended", "stopping"])
def test_cancel_in_any_phase_leaves_no_replica(lab, people, phase):
    job = lab.submit() if phase in ("queued", "admitted") else lab.running()
    if phase == "admitted":
        schedule()
    if phase in ("suspended", "stopping"):
        services.suspend(job=job, by=people.owner)
        lab.visit(job, times=1 if phase == "stopping" else 3)
    services.cancel(job=job, by=people.owner)
    lab.visit(job, times=4)
    assert job.phase == Phase.CANCELLED
    assert lab.cluster.alive(job.run) == []


def test_the_second_job_waits_for_quota_and_shows_the_reason(lab):
    first, second = lab.running(nodes=2, nproc_per_node=3), lab.submit(nodes=2, nproc_per_node=2)
    schedule()
    second.refresh_from_db()
    assert second.phase == Phase.QUEUED
    assert second.wait_reason == "needs 4 CPU slots; queue default has 2 CPU slots free of 8 CPU slots"
    lab.finish(first, 0, 0)
    schedule()
    second.refresh_from_db()
    assert second.phase == Phase.ADMITTED


@pytest.mark.django_db(transaction=True)
def test_concurrent_schedulers_admit_each_job_once(lab):
    for _ in range(12):
        lab.submit(nodes=1, nproc_per_node=2)  # 8 slots hold four of them
    barrier = threading.Barrier(4)
    counts: list[int] = []

    def one() -> None:
        barrier.wait()
        counts.append(schedule_queue(lab.queue.pk))
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 4
    assert Job.objects.holding_quota().count() == 4


def test_the_same_idempotency_key_returns_the_same_job(lab, people, queue):
    sent = {"command": "torchrun x.py"}
    first, is_new = services.submit(user=people.owner, queue=queue, sent=sent, idempotency_key="k")
    again, is_new_again = services.submit(user=people.owner, queue=queue, sent=sent, idempotency_key="k")
    assert (first.pk, is_new, is_new_again) == (again.pk, True, False)
    other, _ = services.submit(user=people.owner, queue=queue, sent=sent)
    assert other.pk != first.pk
    assert other.name != first.name


@pytest.mark.django_db(transaction=True)
def test_one_key_sent_by_eight_threads_makes_one_job(lab, people, queue):
    barrier = threading.Barrier(8)
    made: list[tuple[int, bool]] = []

    def one() -> None:
        barrier.wait()
        job, is_new = services.submit(
            user=people.owner, queue=queue, sent={"command": "torchrun x.py"}, idempotency_key="same"
        )
        made.append((job.pk, is_new))
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len({pk for pk, _ in made}) == 1
    assert [is_new for _, is_new in made].count(True) == 1
    assert Job.objects.count() == 1


def test_only_a_name_chosen_by_the_user_can_clash(lab):
    lab.submit(name="mine")
    with pytest.raises(Conflict, match="'mine' is that of an open job"):
        lab.submit(name="mine")
    assert Job.objects.count() == 1


def test_a_name_is_free_again_when_its_job_has_finished_and_a_resubmission_keeps_it(lab):
    first = lab.running(name="mine")
    lab.finish(first, 0, 0)
    second = lab.submit(name="mine")
    assert Job.objects.filter(name="mine").count() == 2
    other, _ = services.resubmit(job=first, by=lab.user)
    assert other.name != "mine", "an open job has it"
    services.cancel(job=second, by=lab.user)
    lab.visit(second, times=3)
    third, _ = services.resubmit(job=first, by=lab.user)
    assert third.name == "mine"
    unnamed, _ = services.resubmit(job=lab.submit(), by=lab.user)
    assert unnamed.name.startswith("train-")


def test_a_job_larger_than_the_queue_is_refused_with_the_numbers(lab):
    with pytest.raises(InvalidInput, match="3 x 3 processes need 9 CPU slots, but queue default has 8"):
        lab.submit(nodes=3, nproc_per_node=3)


@pytest.mark.parametrize(
    ("who", "may_submit"),
    [("owner", True), ("teammate", True), ("admin", True), ("viewer", False), ("stranger", False)],
)
def test_who_may_submit(lab, people, who, may_submit):
    lab.user = getattr(people, who)
    if may_submit:
        assert lab.submit().pk
    else:
        with pytest.raises(NotAllowed, match="may not submit in team nlp"):
            lab.submit()


def test_a_finished_job_cannot_be_suspended(lab, people):
    job = lab.finish(lab.running(), 0, 0)
    with pytest.raises(Conflict, match="resubmit it"):
        services.suspend(job=job, by=people.owner)


def test_a_visit_with_a_stale_lease_writes_nothing(lab):
    job = lab.running()
    store = DjangoStore()
    now = timezone.now() + timedelta(hours=1)
    late = store.take(job.pk, owner="late", now=now)
    newer = store.take(job.pk, owner="newer", now=now + timedelta(minutes=5))
    assert newer.token > late.token
    with pytest.raises(LeaseLost):
        store.record(late, seen=Seen(), step=Step(Phase.RUNNING), now=now)


def test_a_leased_job_is_not_visited_but_marked_due(lab):
    job = lab.running()
    store, now = DjangoStore(), timezone.now() + timedelta(hours=1)
    held = store.take(job.pk, owner="one", now=now)
    assert store.take(job.pk, owner="two", now=now + timedelta(seconds=1)) is None
    store.release(held, due=now + timedelta(hours=2))
    job.refresh_from_db()
    assert job.next_reconcile_at == now + timedelta(seconds=1)  # the second request is not lost


def test_a_step_decided_on_an_outdated_phase_is_dropped(lab):
    job = lab.submit()
    store, now = DjangoStore(), timezone.now()
    held = store.take(job.pk, owner="one", now=now)
    schedule()  # admits without a lease
    held = store.record(held, seen=Seen(), step=Step(Phase.SUSPENDED), now=now)
    assert held.view.phase is Phase.ADMITTED


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("job_phase_is_known", {"phase": "dreaming"}),
        ("job_finished_at_only_when_finished", {"phase": "succeeded"}),
        ("job_stopping_has_a_reason", {"phase": "stopping", "stop_reason": ""}),
        ("job_on_cluster_has_an_attempt", {"phase": "running", "attempt": 0}),
        ("job_takes_slots", {"slots": 0}),
    ],
)
def test_postgres_refuses_inconsistent_jobs(lab, name, change):
    job = lab.submit()
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**change)


def test_an_attempt_has_each_replica_once(lab):
    job = lab.running()
    with pytest.raises(IntegrityError, match="replica_once_per_attempt"), transaction.atomic():
        Replica.objects.create(job=job, attempt=1, role="worker", index=0, name="x")


def test_every_user_action_is_in_the_history(lab, people):
    job = lab.running()
    services.suspend(job=job, by=people.teammate)
    services.suspend(job=job, by=people.teammate)
    event = JobEvent.objects.get(job=job, kind="suspend")  # recorded once, though requested twice
    assert event.user == people.teammate
