"""Stored failure verdicts: computed from what agents send; lists, filters and the API read them, not the logs."""

import time
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import services
from jobs.analysis import failure_rows, failures, tracebacks
from jobs.control import judgement
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Step
from jobs.core.verdict import Seen
from jobs.ingest import apply
from jobs.logs import storage
from jobs.models import AttemptFailure, Job
from jobs.web.ranks import matrix
from tests.support.builders import batch, identity, item, log_item

LABEL = "ValueError: label 17 is outside 0..9"
TRACE = ["Traceback (most recent call last):", '  File "/code/train.py", line 9, in <module>', "    step(17)", LABEL]
CLOSED = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:4444"
NOW = time.time()


@pytest.fixture
def job(lab):
    return lab.running()


@pytest.fixture
def owner(as_, people):
    return as_(people.owner)


@pytest.fixture
def api(owner):
    return owner


def error(*lines):
    return {"traceback": "\n".join([*TRACE[:-1], *(lines or [LABEL])]), "stderr": "", "stdout": "", "oom_kills": 0}


def failed(rank, at=0.0, **more):
    values = {"exit_code": 1, "at": NOW + at, **more}
    return item("rank", rank=rank, local_rank=rank % 2, state="failed", **values)


def send(job, *items, node=0, seq=1):
    apply.apply_batch(identity=identity(job, node), batch=batch(seq, *items))
    judge(job)


def judge(job):
    """What the visit does for which the batch woke the job (tests/db/control/test_judgement.py), without its cluster."""
    store, now = DjangoStore(), timezone.now()
    held = store.take(job.pk, owner="judge", now=now)
    judgement.judge(held, seen=Seen(), step=Step())
    store.release(held, due=now)


def test_a_failed_rank_is_judged_as_soon_as_its_agent_reports_it(job):
    send(job, failed(1, error_at=NOW, error=error()))
    row = AttemptFailure.objects.get(job=job, attempt=1)
    assert (row.rank, row.replica, row.kind, row.certainty) == (1, "worker-0", "user_code", "sure")
    assert row.headline == f"rank 1: {LABEL}"
    assert row.traceback == TRACE


def test_an_error_sent_by_the_agent_is_judged_without_reading_a_log(job, monkeypatch):
    send(job, failed(1, error_at=NOW, error=error()))
    monkeypatch.setattr(storage, "read", lambda *given, **more: pytest.fail("a log was read"))
    found = failures.first_failure(job)
    assert (found.headline, found.last_lines) == (f"rank 1: {LABEL}", TRACE)


def test_the_log_is_read_when_an_older_agent_sends_no_error_text(job):
    lines = [f"[rank1]: {line}" for line in TRACE] + [f"step {number}" for number in range(200)]
    send(job, log_item(1, 0, [(NOW, line) for line in lines]), failed(1, error_at=NOW))
    found = failures.first_failure(job)
    assert (found.headline, found.kind, found.traceback) == (f"rank 1: {LABEL}", "user_code", TRACE)


def test_a_later_report_of_another_replica_changes_the_verdict(job):
    send(job, failed(0, at=1, error_at=NOW + 1, error=error(CLOSED)))
    assert AttemptFailure.objects.get().kind == "connection_lost"
    send(job, failed(3, at=2, error_at=NOW, error=error()), node=1)
    row = AttemptFailure.objects.get()
    assert (row.rank, row.kind) == (3, "user_code")


def test_a_rank_that_exited_first_is_named_though_its_exit_is_reported_last(job):
    send(job, failed(0, at=1, error_at=NOW + 1, error=error(CLOSED)))
    send(job, item("rank", rank=3, local_rank=1, state="succeeded", exit_code=0, at=NOW), node=1)
    row = AttemptFailure.objects.get()
    assert (row.rank, row.certainty) == (3, "likely")


def test_restarting_the_failed_rank_withdraws_the_verdict(job):
    send(job, failed(1, error_at=NOW, error=error()))
    send(job, item("rank", rank=1, local_rank=1, pid=7, state="running", at=NOW + 1), seq=2)
    assert not AttemptFailure.objects.exists()
    assert job.ranks.get(rank=1).error is None


def test_the_headline_is_in_the_message_and_the_history_of_the_job(job, lab):
    send(job, failed(1, error_at=NOW, error=error()))
    job = lab.finish(job, 1, 1)
    assert (job.phase, job.message) == ("failed", f"rank 1: {LABEL}")
    assert job.events.filter(kind="step").last().message == f"rank 1: {LABEL}"


def test_each_attempt_keeps_its_own_verdict(lab):
    job = lab.running(max_retries=1)
    send(job, failed(1, error_at=NOW, error=error()))
    job = lab.visit(lab.finish(job, 1, 1), times=4)
    assert job.attempt == 2
    send(job, failed(2, error_at=NOW, error=error("KeyError: 'lr'")), node=1)
    assert failures.first_failure(job, 1).headline == f"rank 1: {LABEL}"
    assert failures.first_failure(job).headline == "rank 2: KeyError: 'lr'"


def test_attempts_without_a_stored_verdict_are_judged_when_read(job, lab):
    send(job, failed(1, error_at=NOW, error=error()))
    lab.finish(job, 1, 1)
    AttemptFailure.objects.all().delete()
    assert failures.first_failure(job).headline == f"rank 1: {LABEL}"


def test_checking_a_healthy_job_does_not_read_its_ranks(job, lab):
    def asked():
        with CaptureQueriesContext(connection) as found:
            assert failures.first_failure(Job.objects.get(pk=job.pk)) is None
        return [one["sql"] for one in found.captured_queries]

    assert len(asked()) == 3, asked()  # the job, its stored verdict, failed ranks and replicas
    job = lab.finish(job, 0, 0)
    assert job.phase == "succeeded"
    assert len(asked()) == 2, asked()


def test_a_failed_rank_of_a_running_job_is_found_without_a_stored_verdict(job):
    send(job, failed(1, error_at=NOW, error=error()))
    AttemptFailure.objects.all().delete()
    assert failures.first_failure(job).headline == f"rank 1: {LABEL}"
    job.ranks.update(state="running")
    assert failures.first_failure(job) is None
    job.replicas.filter(index=1).update(state="lost")
    assert failures.first_failure(job).replica == "worker-1"


def test_a_cancelled_job_has_no_failure(job, lab, people):
    services.cancel(job=job, by=people.owner)
    job = lab.visit(job, times=3)
    send(job, failed(1, signal=15, exit_code=None, is_stopped=True))
    assert job.phase == "cancelled" and not AttemptFailure.objects.exists()


def test_replicas_that_cannot_start_give_the_reason_before_the_timeout(lab):
    job = lab.submit()
    from jobs.scheduling.scheduler import schedule

    schedule()
    lab.cluster.start_seconds = 1e9
    job = lab.visit(job, times=2)
    why = "the image registry/x:1 cannot be pulled (ErrImagePull): not found"
    job.replicas.filter(index=1).update(reason=why)
    failure_rows.refresh(job.pk, job.attempt)
    row = AttemptFailure.objects.get()
    assert (row.kind, row.certainty, row.headline) == ("image", "likely", f"worker-1: {why}")


def test_hostile_text_is_bounded_and_stored(job):
    text = "Traceback (most recent call last):\n" + "\0\ud800" * 100_000
    send(job, failed(1, error={"traceback": text, "stderr": "x" * 10**6, "stdout": "", "more": 1}))
    assert len(str(job.ranks.get(rank=1).error)) < 100_000
    assert AttemptFailure.objects.get().rank == 1


def test_a_failed_replica_is_judged_by_the_output_of_its_own_launcher(job, lab):
    other = [*TRACE[:-1], "KeyError: 'lr'"]
    send(job, log_item(-1, 0, [(NOW, line) for line in TRACE]), node=1)
    send(job, log_item(-1, 0, [(NOW + 1, line) for line in other]))
    lab.cluster.finish(job.run, job.attempt, "worker", index=1, exit_code=1)
    job = lab.visit(job, times=4)
    row = AttemptFailure.objects.get(job=job)
    assert (job.phase, row.replica, row.headline) == ("failed", "worker-1", f"worker-1: {LABEL}")
    assert row.traceback == TRACE


def test_bytes_that_postgres_cannot_store_do_not_keep_a_job_from_finishing(job, lab):
    text = '{"exc_info": "Traceback (most recent call last):\\n  File \\"a.py\\", line 3, in f\\nValueError: \\u0000\\ud800"}'
    send(job, log_item(-1, 0, [(NOW, "begin\0end"), (NOW, text)]))
    job = lab.finish(job, 1)
    assert job.phase == "failed"
    row = AttemptFailure.objects.get(job=job)
    assert row.headline.startswith("worker-0: ValueError: \N{REPLACEMENT CHARACTER}"), row.headline
    assert any("begin\N{REPLACEMENT CHARACTER}end" in line for line in row.last_lines), row.last_lines


def test_an_exception_while_judging_blocks_neither_a_step_nor_a_batch(job, lab, monkeypatch, caplog):
    def broken(*given, **more):
        raise ValueError("a text that nobody thought of")

    monkeypatch.setattr(failures, "judge", broken)
    send(job, failed(1, error_at=NOW, error=error()))
    assert f"job {job.pk}: attempt 1 could not be judged" in caplog.text
    job = lab.finish(job, 1, 1)
    assert (job.phase, AttemptFailure.objects.count()) == ("failed", 0)


class TestReaders:
    def test_ranks_are_listed_without_loading_their_error_texts(self, owner, job):
        send(job, failed(0, error_at=NOW, error=error()), failed(1, error_at=NOW, error=error()))
        with CaptureQueriesContext(connection) as asked:
            grid = matrix(job, attempt=1, now=timezone.now())
            assert owner.get(f"/api/v1/jobs/{job.pk}/ranks").status_code == 200
        assert all("error" in cell.rank.get_deferred_fields() for cell in grid.cells)
        assert not [one["sql"] for one in asked.captured_queries if '"jobs_rank"."error"' in one["sql"]]

    def test_a_list_of_jobs_has_headlines_without_tracebacks(self, api, job, lab):
        send(job, failed(1, error_at=NOW, error=error()))
        lab.finish(job, 1, 1)
        (one,) = api.get("/api/v1/jobs").json()["results"]
        assert (one["first_failure"]["kind"], one["first_failure"]["headline"]) == ("user_code", f"rank 1: {LABEL}")
        assert one["first_failure"]["traceback"] == []
        assert api.get(f"/api/v1/jobs/{job.pk}").json()["first_failure"]["traceback"] == TRACE

    def test_a_list_is_filtered_by_kind(self, api, job, lab):
        send(job, failed(1, error_at=NOW, error=error()))
        lab.finish(job, 1, 1)
        other = lab.running()
        named = lambda query: [one["id"] for one in api.get(f"/api/v1/jobs?kind={query}").json()["results"]]  # noqa: E731
        assert (named("user_code"), named("disk"), named("disk,user_code")) == ([job.pk], [], [job.pk])
        answer = api.get("/api/v1/jobs?kind=sabotage")
        assert answer.status_code == 422 and "user_code" in answer.text
        assert other.pk not in named("unknown")

    def test_the_page_lists_and_filters_by_kind(self, owner, job, lab):
        send(job, failed(1, error_at=NOW, error=error()))
        lab.finish(job, 1, 1)
        assert LABEL in owner.get("/jobs?kind=user_code").text
        assert LABEL not in owner.get("/jobs?kind=disk").text
        assert "No job matches" in owner.get("/jobs?kind=disk").text

    def test_attempts_include_their_verdicts(self, api, job, lab):
        send(job, failed(1, error_at=NOW, error=error()))
        lab.finish(job, 1, 1)
        (one,) = api.get(f"/api/v1/jobs/{job.pk}/attempts").json()["results"]
        assert (one["first_failing_rank"], one["first_failure"]["kind"]) == (1, "user_code")


def test_an_error_text_is_parsed_once_however_often_the_attempt_is_judged(job, monkeypatch):
    send(job, failed(1, error_at=NOW, error=error()))
    monkeypatch.setattr(tracebacks, "chains", lambda lines: pytest.fail("a text was read again"))
    send(job, failed(3, at=1, error_at=NOW + 1, error=error()), node=1)
    assert AttemptFailure.objects.get().rank == 1


def test_an_unchanged_verdict_is_not_written_again(job):
    send(job, failed(1, error_at=NOW, error=error()))
    before = AttemptFailure.objects.get().judged_at
    failure_rows.refresh(job.pk, 1)
    assert AttemptFailure.objects.get().judged_at == before, "nothing new is nothing to write"
    assert Job.objects.filter(attempt_failures__kind="user_code").count() == 1


def test_the_next_visit_stores_a_verdict_that_was_never_written(job, lab):
    job.ranks.filter(rank=1).update(
        state="failed", exit_code=1, ended_at=job.created_at, started_at=job.created_at, error=error()
    )
    lab.finish(job, 1, 1)
    assert AttemptFailure.objects.get(job=job).headline == f"rank 1: {LABEL}"


class TestOneSentence:
    """The list of jobs, the headline, the job's message and its history give the same sentence for a failed attempt."""

    LAUNCHERS = [f"[rank2]: {line}" for line in TRACE]

    @pytest.fixture
    def job(self, lab):
        """One process, whose command starts four more: rank 2 is not a rank of the job."""
        return lab.running(command=["bash", "-c", "torchrun --nproc_per_node=4 x.py"], nodes=1, nproc_per_node=1)

    def sentences(self, job, api) -> set[str]:
        job.refresh_from_db()
        shown = api.get(f"/api/v1/jobs/{job.pk}").json()
        steps = job.events.filter(kind="step")
        return {job.message, steps.last().message, shown["message"], shown["first_failure"]["headline"]}

    def test_for_a_rank_that_is_not_a_rank_of_the_job(self, job, lab, api):
        fails = item("rank", rank=2, local_rank=2, state="failed", exit_code=1, at=NOW)
        send(job, log_item(2, 0, [(NOW, line) for line in self.LAUNCHERS]), fails)
        job = lab.finish(job, 1)
        assert job.phase == "failed"
        assert self.sentences(job, api) == {f"worker-0: {LABEL}"}

    def test_when_the_output_arrives_after_the_end(self, job, lab, api):
        job = lab.finish(job, 1)
        assert self.sentences(job, api) == {"worker-0 exited with code 1"}
        send(job, log_item(-1, 0, [(NOW, line) for line in self.LAUNCHERS]))
        assert self.sentences(job, api) == {f"worker-0: {LABEL}"}

    def test_when_a_rank_reports_its_error_after_the_end(self, lab, api):
        job = lab.running()
        job = lab.finish(job, 1, 1)
        send(job, failed(1, error_at=NOW, error=error()))
        assert self.sentences(job, api) == {f"rank 1: {LABEL}"}

    def test_for_an_attempt_that_was_retried_meanwhile(self, lab):
        job = lab.running(max_retries=1)
        job = lab.visit(lab.finish(job, 1, 1), times=4)
        assert job.attempt == 2
        message = job.message
        apply.apply_batch(
            identity=replace(identity(job), attempt=1), batch=batch(1, failed(1, error_at=NOW, error=error()))
        )
        judge(job)
        job.refresh_from_db()
        assert job.message == message, "the second attempt's own"
        steps = list(job.events.filter(kind="step", attempt=1).values_list("phase", "message"))
        assert steps[-2:] == [
            ("stopping", "worker-0 exited with code 1; retry 1 of 1"),
            ("admitted", f"rank 1: {LABEL}"),
        ]

    def test_without_a_verdict_the_step_gives_the_exit_of_the_attempt(self, job, lab, monkeypatch):
        monkeypatch.setattr(failures, "judge", lambda *given, **more: None)
        job = lab.finish(job, 1)
        assert (job.phase, job.message) == ("failed", "worker-0 exited with code 1")
        assert job.events.filter(kind="step").last().message == "worker-0 exited with code 1"
