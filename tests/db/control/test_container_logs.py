"""Container logs of replicas with silent agents: each line is stored once, even if readers die or agents return."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from common.errors import Unreachable
from jobs.control import container_logs
from jobs.control.store import DjangoStore
from jobs.core.agent_identity import AgentIdentity
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ReplicaSeen, ReplicaState, Seen
from jobs.ingest import apply, replica_rows
from jobs.ingest.container_log_format import ContainerLogReader
from jobs.logs import reader
from jobs.models import JobEvent, Rank, Replica
from tests.support.builders import batch, identity, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]


class Printing:
    """The log methods of a cluster adapter. `logs` maps a worker's index to its lines in the kubelet's format."""

    HAS_LOGS, control_url = True, "http://nowhere.test"

    def __init__(self):
        self.logs: dict[int, list[bytes]] = {0: [], 1: []}
        self.asked: list[tuple[int, float | None]] = []
        self.places: set[tuple[int, int]] = set()
        self.is_broken = False

    def say(self, index: int, rank: int, number: int, text: str, *, age_seconds: float = 0) -> None:
        at = timezone.now() - timedelta(seconds=age_seconds)
        self.logs[index].append(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z [{rank}:{number}] {text}".encode())

    def read_log(self, ref, place, since, take) -> bool:
        _, index, incarnation = place
        self.places.add((index, incarnation))
        self.asked.append((index, since))
        if self.is_broken:
            raise Unreachable("pods/log is forbidden")
        start = "" if since is None else f"{datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%S}"
        return all(take(line) for line in self.logs[index] if line.decode() >= start)


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(container_logs, "remembered", container_logs.ReadingState())
    return Printing()


@pytest.fixture
def job(lab):
    job = lab.running()
    Replica.objects.filter(job=job).update(started_at=timezone.now() - timedelta(seconds=30))
    return job


def collect(job, cluster, *, states=("running", "running"), is_last=False) -> bool:
    held = DjangoStore().take(job.pk, owner="reader", now=timezone.now() + timedelta(hours=1))
    if is_last:
        view = held.view.__class__(**{**held.view.__dict__, "phase": Phase.STOPPING, "phase_since": timezone.now()})
        held = held.__class__(**{**held.__dict__, "view": view})
    lives = dict(Replica.objects.filter(job=job).values_list("index", "incarnation"))
    looks = (ReplicaSeen("worker", index, ReplicaState(state), incarnation=lives[index]) for index, state in enumerate(states))  # fmt: skip
    seen = Seen(tuple(looks), as_of=timezone.now())
    try:
        return container_logs.backfill(held, seen=seen, cluster=cluster, now=timezone.now())
    finally:
        DjangoStore().release(held, due=None)


def texts(job) -> list[str]:
    return [line.text for line in reader.read(job=job).lines]


def notes(job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True))


def test_lines_of_an_agent_that_never_reported_are_read_once_and_noted(job, cluster):
    cluster.say(0, 0, 0, "first")
    collect(job, cluster)
    cluster.say(0, 0, 1, "second")
    cluster.say(1, 2, 0, "other pod")
    collect(job, cluster)
    collect(job, cluster)
    assert sorted(texts(job)) == ["first", "other pod", "second"]
    assert Rank.objects.get(job=job, rank=0).state == "running"
    (note,) = notes(job)
    assert "http://nowhere.test" in note and "states come from the pods" in note


def test_replicas_whose_agents_report_are_not_read(job, cluster):
    for index in (0, 1):
        apply.apply_batch(identity=identity(job, index), batch=batch(1))
    assert collect(job, cluster)
    assert cluster.asked == []


def test_after_an_agent_falls_silent_only_its_unsent_lines_are_read(job, cluster):
    now = timezone.now().timestamp()
    apply.apply_batch(
        identity=identity(job), batch=batch(1, log_item(0, 0, [(now - 90, "sent"), (now - 89, "sent too")]))
    )
    Replica.objects.filter(job=job, index=0).update(last_batch_at=timezone.now() - timedelta(seconds=80))
    for number, text in enumerate(("sent", "sent too", "not sent")):
        cluster.say(0, 0, number, text, age_seconds=90 - number)
    collect(job, cluster)
    assert texts(job) == ["sent", "sent too", "not sent"]
    assert next(since for index, since in cluster.asked if index == 0) is not None, "only the end of it is asked for"
    assert any("stopped reporting" in note for note in notes(job))


def test_an_agent_that_comes_back_neither_repeats_nor_loses_lines(job, cluster):
    now = timezone.now().timestamp()
    for number in range(3):
        cluster.say(0, 0, number, f"line {number}")
    collect(job, cluster)
    late = batch(
        1, log_item(0, 0, [(now, "line 0"), (now, "line 1")]), log_item(0, 2, [(now, "line 2"), (now, "line 3")])
    )
    assert apply.apply_batch(identity=identity(job), batch=late)[0] == 1
    assert apply.apply_batch(identity=identity(job), batch=batch(2, log_item(0, 4, [(now, "line 4")])))[0] == 2
    assert texts(job) == [f"line {number}" for number in range(5)]


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_readers_only_the_first_writes(job, cluster):
    cluster.say(0, 0, 0, "once")
    stale = replica_rows.find(identity(job))
    collect(job, cluster)
    reading = ContainerLogReader(stale.positions)
    cluster.read_log(AttemptRef("", 1), ("worker", 0, 0), None, reading.take)
    assert not apply.apply_container_log(identity=identity(job), row=stale, items=reading.items())
    assert texts(job) == ["once"]


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_arrives_during_the_read_wins_over_the_container_log(job, cluster):
    cluster.say(0, 0, 0, "once")
    stale = replica_rows.find(identity(job))
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(timezone.now().timestamp(), "once")])))
    reading = ContainerLogReader(stale.positions)
    cluster.read_log(AttemptRef("", 1), ("worker", 0, 0), None, reading.take)
    assert not apply.apply_container_log(identity=identity(job), row=stale, items=reading.items())
    assert texts(job) == ["once"]


def test_a_replacement_counts_its_own_lines_from_zero(job, cluster):
    """In an elastic job the log holds the lines of both incarnations, those of the second after those of the first."""
    now = timezone.now().timestamp()
    apply.apply_batch(
        identity=identity(job), batch=batch(1, log_item(0, 0, [(now, "of the first"), (now, "its last")]))
    )
    began = timezone.now() - timedelta(seconds=30)
    Replica.objects.filter(job=job, index=0).update(
        incarnation=1, lines_before={"0": 2}, batch_seq=0, last_batch_at=None, started_at=began
    )
    second = AgentIdentity(job.pk, job.run, job.attempt, "worker", 0, 1)
    cluster.say(0, 0, 0, "of the second")
    collect(job, cluster)
    assert (0, 1) in cluster.places
    late = batch(1, log_item(0, 0, [(now, "of the second"), (now, "more of it")]))
    assert apply.apply_batch(identity=second, batch=late)[0] == 1
    assert texts(job) == ["of the first", "its last", "of the second", "more of it"]


def test_a_clock_jump_loses_no_line(job, cluster):
    cluster.say(0, 0, 0, "first")
    collect(job, cluster)
    cluster.say(0, 0, 1, "from an hour ago", age_seconds=3600)
    cluster.say(0, 0, 2, "now")
    collect(job, cluster)
    assert texts(job) == ["first", "from an hour ago", "now"]


def test_pods_are_kept_until_their_logs_are_read_and_ended_ones_are_read_once(job, cluster, monkeypatch):
    for index in (0, 1):
        cluster.say(index, 2 * index, 0, f"last words of {index}")
    monkeypatch.setattr(container_logs, "BUDGET_SECONDS", -1.0)
    assert not collect(job, cluster, states=("succeeded", "succeeded"), is_last=True)
    assert texts(job) == []
    monkeypatch.setattr(container_logs, "BUDGET_SECONDS", 60.0)
    assert collect(job, cluster, states=("succeeded", "succeeded"), is_last=True)
    assert sorted(texts(job)) == ["last words of 0", "last words of 1"]
    assert set(Rank.objects.filter(job=job).values_list("state", "exit_code")) == {("succeeded", 0)}
    count = len(cluster.asked)
    assert collect(job, cluster, states=("succeeded", "succeeded"), is_last=True)
    assert len(cluster.asked) == count


def test_unreadable_logs_block_nothing_and_are_not_retried_forever(job, cluster):
    cluster.is_broken = True
    assert not collect(job, cluster, states=("failed", "failed"), is_last=True), "two failures are not enough"
    assert collect(job, cluster, states=("failed", "failed"), is_last=True)
    assert collect(job, cluster, states=("failed", "failed"), is_last=True)
    assert len(cluster.asked) == container_logs.MOST_FAILURES
    (note,) = notes(job)
    assert "pods/log is forbidden" in note


def test_a_read_that_timed_out_once_is_retried(job, cluster):
    """Giving up after one failure would pause log reading for all jobs of the cluster for minutes."""
    cluster.say(0, 0, 0, "slow")
    cluster.is_broken = True
    assert not collect(job, cluster, states=("failed", "absent"), is_last=True)
    cluster.is_broken = False
    assert collect(job, cluster, states=("failed", "absent"), is_last=True)
    assert texts(job) == ["slow"]
    assert not any("cannot be read" in note for note in notes(job))


def test_unsent_lines_of_a_killed_replica_are_read_before_it_is_replaced(job, cluster):
    """The elastic attempt goes on: its container still exists, and nothing reads it after the replacement."""
    now = timezone.now().timestamp()
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(now, "sent")])))
    apply.apply_batch(identity=identity(job, 1), batch=batch(1))
    for number, text in enumerate(("sent", "not sent")):
        cluster.say(0, 0, number, text)
    held = DjangoStore().take(job.pk, owner="reader", now=timezone.now() + timedelta(hours=1))
    killed = ReplicaSeen("worker", 0, ReplicaState.FAILED, signal=9)
    seen = Seen((killed, ReplicaSeen("worker", 1, ReplicaState.RUNNING)), as_of=timezone.now())
    assert container_logs.backfill(held, seen=seen, cluster=cluster, now=timezone.now())
    assert texts(job) == ["sent", "not sent"]
    assert cluster.places == {(0, 0)}, "who is heard is not asked"

    cluster.places.clear()
    Replica.objects.filter(job=job, index=0).update(incarnation=1)
    assert container_logs.backfill(held, seen=seen, cluster=cluster, now=timezone.now())
    assert cluster.places == set(), "what was seen is of the one before"


AGES = [None, 1, 14, 16, 59, 61, 3600]


@pytest.mark.parametrize("started", AGES)
@pytest.mark.parametrize("heard", AGES)
def test_the_database_query_and_the_python_check_agree_on_silence(job, started, heard):
    now = timezone.now()
    row = Replica.objects.filter(job=job).first()
    row.started_at, row.last_batch_at = (
        None if age is None else now - timedelta(seconds=age) for age in (started, heard)
    )
    row.save()
    found = Replica.objects.filter(container_logs.silent_rows(now), pk=row.pk).exists()
    assert found == container_logs.is_silent(row, now)
    assert found == (heard > 60 if heard else bool(started and started > 15))
