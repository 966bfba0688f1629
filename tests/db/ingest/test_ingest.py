import struct
import threading
import time

import pytest
from django.db import connection
from django.utils import timezone

from common.errors import InvalidInput, NotAllowed
from jobs import services
from jobs.analysis import failures, metrics
from jobs.control.store import DjangoStore
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import parse
from jobs.core.lifecycle import Step
from jobs.core.verdict import ReplicaSeen, ReplicaState, Seen
from jobs.ingest import apply, replica_rows, translate
from jobs.ingest.agent_tokens import issue, read
from jobs.logs import reader
from jobs.models import LogSegment, Rank
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)  # near the present: the control plane clamps times that are far off


@pytest.fixture
def job(lab):
    return lab.running()


def texts(page) -> list[str]:
    return [line.text for line in page.lines]


def test_a_batch_is_applied_once(job):
    one = batch(1, log_item(0, 0, [(T, "a"), (T + 1, "b")]))
    assert apply.apply_batch(identity=identity(job), batch=one)[0] == 1
    assert apply.apply_batch(identity=identity(job), batch=one)[0] == 1
    assert texts(reader.read(job=job)) == ["a", "b"]


def test_a_batch_that_comes_too_early_is_answered_with_the_last_applied_number(job):
    assert apply.apply_batch(identity=identity(job), batch=batch(3, log_item(0, 0, [(T, "a")])))[0] == 0
    assert LogSegment.objects.count() == 0


def test_ranks_are_merged_by_time_and_can_be_read_separately(job):
    apply.apply_batch(identity=identity(job, 0), batch=batch(1, log_item(0, 0, [(T, "first"), (T + 2, "third")])))
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, log_item(2, 0, [(T + 1, "second")])))
    assert texts(reader.read(job=job)) == ["first", "second", "third"]
    assert texts(reader.read(job=job, source=reader.LogSource(2))) == ["second"]


def test_a_cursor_continues_where_it_stopped_even_if_older_lines_arrive_late(job):
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, log_item(2, 0, [(T + 5, "new")])))
    page = reader.read(job=job)
    apply.apply_batch(identity=identity(job, 0), batch=batch(1, log_item(0, 0, [(T, "late")])))
    apply.apply_batch(identity=identity(job, 1), batch=batch(2, log_item(2, 1, [(T + 6, "newer")])))
    following = reader.read(job=job, cursor=page.cursor)
    assert texts(following) == ["late", "newer"]
    assert texts(reader.read(job=job, cursor=following.cursor)) == []


def test_pages_together_contain_every_line_once(job):
    for seq in range(1, 40):
        apply.apply_batch(
            identity=identity(job),
            batch=batch(seq, log_item(0, (seq - 1) * 10, [(T + seq, f"{seq}-{n}") for n in range(10)])),
        )
    seen, cursor = [], ""
    while True:
        page = reader.read(job=job, cursor=cursor, limit=25)
        if not page.lines:
            break
        seen += texts(page)
        cursor = page.cursor
    assert seen == [f"{seq}-{n}" for seq in range(1, 40) for n in range(10)]


def test_the_tail_starts_near_the_end_and_can_be_followed(job):
    for seq in range(1, 20):
        apply.apply_batch(identity=identity(job), batch=batch(seq, log_item(0, seq - 1, [(T + seq, f"line {seq}")])))
    page = reader.read(job=job, tail=3)
    assert texts(page) == ["line 17", "line 18", "line 19"]
    apply.apply_batch(identity=identity(job), batch=batch(20, log_item(0, 19, [(T + 20, "line 20")])))
    assert texts(reader.read(job=job, cursor=page.cursor)) == ["line 20"]


def test_a_log_is_complete_when_the_job_is_finished_and_all_lines_were_read(job, lab):
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "a")])))
    assert not reader.read(job=job).is_complete
    lab.finish(job, 0, 0)
    assert reader.read(job=job).is_complete


def test_reading_continues_into_the_next_attempt(lab):
    job = lab.running(max_retries=1)
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "one")])))
    lab.finish(job, 1)
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "two")])))
    first = reader.read(job=job)
    assert texts(first) + texts(reader.read(job=job, cursor=first.cursor)) == ["one", "two"]


def test_a_gap_is_shown_as_a_gap(job):
    gap = item("gap", rank=0, first_line=0, lines=9000, raw_bytes=812_331, first_at=T, last_at=T + 1)
    apply.apply_batch(identity=identity(job), batch=batch(1, gap, log_item(0, 9000, [(T + 2, "after")])))
    page = reader.read(job=job)
    assert page.lines[0].is_gap
    assert "9000 lines" in page.lines[0].text
    assert page.lines[1].text == "after"


def test_rank_states_samples_and_metrics_are_stored(job):
    apply.apply_batch(
        identity=identity(job, 1),
        batch=batch(
            1,
            item("rank", rank=3, local_rank=1, pid=4711, state="running", at=T),
            item("sample", rank=3, at=T + 1, cpu=0.98, rss_bytes=1000, gpu=None, gpu_mem_bytes=None),
            item("metrics", rank=3, points=[[T + 1, 120, {"loss": 0.42, "bad": float("nan")}]]),
        ),
    )
    rank = Rank.objects.get(job=job, rank=3)
    assert (rank.state, rank.pid, rank.cpu, rank.step) == ("running", 4711, 0.98, 120)
    known = replica_rows.find(identity(job, 1)).positions[3]
    assert dict(zip(translate.SAMPLED, known.sampled, strict=True)) == {
        name: getattr(rank, name) for name in translate.SAMPLED
    }
    assert [(one.name, one.rank, one.points[0][1:]) for one in metrics.series(job=job, names=["loss", "bad"])] == [
        ("bad", 3, (120, None)),
        ("loss", 3, (120, 0.42)),
    ]


def test_metrics_of_a_process_without_a_rank_count_for_the_first_rank_of_its_replica(job):
    apply.apply_batch(
        identity=identity(job, 1),
        batch=batch(1, item("metrics", rank=-1, points=[[T, None, {"loss": 1.5, "gone": None}]])),
    )
    assert [(one.name, one.rank) for one in metrics.series(job=job)] == [("gone", 2), ("loss", 2)]


def test_a_rank_whose_loss_is_not_finite_says_since_which_step(job):
    def report(seq, *values):
        points = [[T + step, step, {"loss": loss, "grad_norm": norm}] for step, loss, norm in values]
        apply.apply_batch(identity=identity(job), batch=batch(seq, item("metrics", rank=0, points=points)))
        rank = Rank.objects.get(job=job, rank=0)
        return rank.nan_series, rank.nan_step

    assert report(1, (18, 0.1, 1.0), (19, 0.1, None)) == ("", None), "skipped steps are usual with mixed precision"
    assert report(2, (20, None, None), (21, None, None)) == ("loss", 20)
    assert report(3, (22, None, 1.0)) == ("loss", 20), "since the first of them, over all batches"
    assert report(4, (23, 0.2, 1.0)) == ("", None)
    assert report(5, (24, None, 1.0), (25, 0.2, 1.0), (26, None, 1.0)) == ("loss", 26)


def test_each_attempt_has_its_own_series(lab):
    job = lab.running(max_retries=1)
    for loss in (4.0, 2.0):
        apply.apply_batch(
            identity=identity(job), batch=batch(1, item("metrics", rank=0, points=[[T, 1, {"loss": loss}]]))
        )
        if job.attempt == 1:
            lab.finish(job, 1)
    assert job.attempt == 2
    assert [[value for *_, value in one.points] for one in metrics.series(job=job)] == [[2.0]]
    assert [[value for *_, value in one.points] for one in metrics.series(job=job, attempt=1)] == [[4.0]]


def test_series_are_downsampled_but_keep_the_last_point(job):
    points = [[T + step, step, {"loss": 1.0}] for step in range(5000)]
    apply.apply_batch(identity=identity(job), batch=batch(1, item("metrics", rank=0, points=points)))
    (series,) = metrics.series(job=job, names=["loss"], limit=100)
    assert 90 <= len(series.points) <= 101
    assert series.points[-1][1] == 4999


def test_an_answer_with_more_series_has_fewer_points_of_each(job, monkeypatch):
    """16 ranks with 100 names each took 5 s of a core and 300 MB; beyond a limit, series must be requested by name."""
    monkeypatch.setattr(metrics, "MOST_POINTS", 200)
    points = [[T + step, step, {f"m{n}": float(step) for n in range(10)}] for step in range(300)]
    apply.apply_batch(identity=identity(job), batch=batch(1, item("metrics", rank=0, points=points)))
    found = metrics.series(job=job)
    assert len(found) == 10 and all(15 <= len(one.points) <= 21 for one in found)
    assert all(one.points[-1][1] == 299 for one in found)
    (one,) = metrics.series(job=job, names=["m3"])
    assert len(one.points) >= 100
    monkeypatch.setattr(metrics, "MOST_SERIES", 9)
    with pytest.raises(InvalidInput, match="ask for some names"):
        metrics.series(job=job)
    assert len(metrics.series(job=job, names=["m3", "m4"])) == 2


@pytest.mark.parametrize(
    "bad",
    [
        item("rank", rank=0, state="dancing", at=T),
        item("rank", rank="0", state="running", at=T),
        item("sample", rank=0, at=T, cpu="much"),
        item("metrics", rank=0, points=[["now", 1, {}]]),
        item("log", rank=0, lines=-1, first_line=0, raw_bytes=0),
    ],
)
def test_a_batch_with_an_invalid_item_is_refused_as_a_whole(job, bad):
    with pytest.raises(InvalidInput):
        apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "a")]), bad))
    assert LogSegment.objects.count() == 0


def test_an_item_kind_of_a_newer_agent_is_ignored(job):
    assert apply.apply_batch(identity=identity(job), batch=batch(1, item("hologram", rank=0)))[0] == 1


def test_an_agent_of_an_attempt_that_never_existed_is_refused(job):
    with pytest.raises(NotAllowed):
        apply.apply_batch(identity=AgentIdentity(job.pk, job.run, 7, "worker", 0), batch=batch(1))


def test_an_agent_of_a_closed_attempt_gets_a_stop_command(job, lab):
    lab.finish(job, 1)
    assert apply.apply_batch(identity=identity(job), batch=batch(1))[1] == [{"do": "stop"}]


def test_a_forged_token_yields_no_identity(job):
    token = issue(identity(job))
    assert read(token) == identity(job)
    assert read(token[:-2] + "xx") is None
    assert read("") is None


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0", struct.pack(">I", 99) + b"{}", struct.pack(">I", 2) + b"[]", struct.pack(">I", 7) + b"\xff" * 7],
)
def test_bytes_that_are_not_a_batch_are_refused(body):
    with pytest.raises(InvalidInput):
        parse(body)


class TestFirstFailure:
    def fail(self, job, rank, **values):
        values = {"exit_code": 1, "at": T + 10, **values}
        return item("rank", rank=rank, local_rank=rank % 2, state="failed", **values)

    def blamed(self, job, *items):
        apply.apply_batch(identity=identity(job, 0), batch=batch(1, *(one for one in items if one.fields["rank"] < 2)))
        apply.apply_batch(identity=identity(job, 1), batch=batch(1, *(one for one in items if one.fields["rank"] >= 2)))
        return failures.first_failure(job)

    def test_the_cause_is_named_though_a_connection_error_ended_earlier(self, job):
        echo = self.fail(job, 0, at=T + 9, error_at=T + 8, is_connection_error=True)
        failure = self.blamed(job, echo, self.fail(job, 3, error_at=T + 9))
        assert (failure.rank, failure.replica, failure.explanation) == (3, "worker-1", "rank 3 exited with code 1")

    def test_ranks_ended_by_the_launcher_are_not_blamed(self, job):
        ended = self.fail(job, 0, at=T + 1, exit_code=None, signal=15, is_stopped=True)
        assert self.blamed(job, ended, self.fail(job, 2)).rank == 2

    def test_a_connection_error_is_blamed_when_nothing_else_failed(self, job):
        assert self.blamed(job, self.fail(job, 1, is_connection_error=True)).rank == 1

    def test_a_killed_launcher_is_the_cause_rather_than_a_rank(self, job, lab):
        ended = [self.fail(job, rank, exit_code=None, signal=9, is_stopped=True) for rank in (0, 1)]
        assert self.blamed(job, *ended) is None
        lab.cluster.finish(job.run, job.attempt, "worker", index=0, exit_code=137)
        lab.visit(job, times=4)
        failure = failures.first_failure(job)
        assert (failure.rank, failure.replica, failure.exit_code) == (None, "worker-0", 137)

    def test_a_signal_is_explained(self, job):
        failure = self.blamed(job, self.fail(job, 1, exit_code=None, signal=9))
        assert (
            failure.explanation
            == "rank 1 was ended by SIGKILL (9): killed by hand, or by the kernel for lack of memory"
        )

    def test_the_last_lines_of_the_failed_rank_are_shown(self, job):
        lines = log_item(3, 0, [(T + n, f"line {n}") for n in range(30)])
        apply.apply_batch(identity=identity(job, 1), batch=batch(1, lines, self.fail(job, 3)))
        assert failures.first_failure(job).last_lines[-1] == "line 29"
        assert len(failures.first_failure(job).last_lines) == 20

    def test_a_cancelled_job_has_no_first_failure(self, job, lab, people):
        services.cancel(job=job, by=people.owner)
        lab.visit(job, times=3)
        assert failures.first_failure(job) is None


def test_the_query_count_of_a_page_of_a_long_log_is_bounded(job, django_assert_max_num_queries):
    now = time.time()
    for seq in range(1, 60):
        apply.apply_batch(identity=identity(job), batch=batch(seq, log_item(0, seq - 1, [(now + seq, "x")])))
    with django_assert_max_num_queries(4):
        reader.read(job=job, tail=5)


@pytest.mark.django_db(transaction=True)
def test_concurrent_ingest_and_visits_of_one_job_do_not_deadlock(job, lab):
    """Both keep writing rows of the same job; neither may fail because Postgres had to break a deadlock."""
    store, errors = DjangoStore(), []

    def guarded(act):
        try:
            for number in range(1, 60):
                act(number)
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    def send(number: int) -> None:
        word = item("replica", state="running", at=T)
        state = item("rank", rank=0, local_rank=0, pid=number, state="running", at=T)
        apply.apply_batch(
            identity=identity(job), batch=batch(number, word, state, log_item(0, number - 1, [(T + number, "x")]))
        )

    def visit(number: int) -> None:
        while (held := store.take(job.pk, owner="test", now=timezone.now())) is None:
            pass  # a batch holds the row: `take` marks the job as due and returns None, so try again
        code = number % 2
        seen = Seen(
            (ReplicaSeen("worker", 0, ReplicaState.RUNNING, is_alive=True, exit_code=code),), as_of=timezone.now()
        )
        store.record(held, seen=seen, step=Step(), now=timezone.now())
        store.release(held, due=None)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in (send, visit)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert LogSegment.objects.count() == 59
