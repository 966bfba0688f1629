"""Ranks that nobody planned get rows, up to twice the plan; items of any further one affect no other rank."""

import time

import pytest

from jobs.analysis import metrics
from jobs.ingest import apply, replica_rows, translate
from jobs.logs import reader
from jobs.models import JobEvent, Rank, Replica
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)


@pytest.fixture
def job(lab):
    """One process, whose command starts four."""
    return lab.running(command=["bash", "-c", "torchrun --nproc_per_node=4 x.py"], nodes=1, nproc_per_node=1)


def rank(number: int, state: str, **more):
    return item("rank", rank=number, local_rank=number, state=state, at=T, **more)


def told(job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True))


def texts(job, rank: int | None = None) -> list[str]:
    return [line.text for line in reader.read(job=job, source=reader.LogSource(rank)).lines]


def test_a_shell_that_starts_more_ranks_than_requested_loses_no_output(job, as_, people):
    """As the agent of the previous release sends it."""
    apply.apply_batch(
        identity=identity(job),
        batch=batch(
            1,
            *(rank(number, "running", pid=100 + number) for number in range(4)),
            log_item(-1, 0, [(T, "launcher: one"), (T, "launcher: two")]),
            log_item(3, 0, [(T + 1, "Traceback (most recent call last):"), (T + 1, "ValueError: label 17")]),
            log_item(0, 0, [(T + 2, "rank 0 trains")]),
            item("metrics", rank=0, points=[[T, 1, {"loss": 0.5}]]),
            item("metrics", rank=3, points=[[T, 1, {"loss": 9.0}]]),
            item("sample", rank=3, at=T, cpu=1.0),
        ),
    )
    apply.apply_batch(
        identity=identity(job),
        batch=batch(
            2,
            rank(3, "failed", exit_code=1),
            rank(0, "failed", signal=15, is_stopped=True),
            log_item(-1, 2, [(T + 3, "launcher: three")]),
            log_item(2, 0, [(T + 4, "rank 2 prints")]),
            log_item(3, 2, [(T + 4, "rank 3 ends")]),
        ),
    )
    apply.apply_batch(identity=identity(job), batch=batch(3, log_item(-1, 3, [(T + 5, "launcher: four")])))
    # Rank 1 is below twice the plan of one, and so a rank like any other.
    assert texts(job, -1) == [
        "launcher: one", "launcher: two", "Traceback (most recent call last):", "ValueError: label 17",
        "launcher: three", "rank 2 prints", "rank 3 ends", "launcher: four",
    ]  # fmt: skip
    assert texts(job, 0) == ["rank 0 trains"]
    assert list(Rank.objects.filter(job=job).values_list("rank", "state", "signal")) == [
        (0, "failed", 15), (1, "running", None),
    ]  # fmt: skip
    assert [(one.rank, one.points[0][2]) for one in metrics.series(job=job, names=["loss"])] == [(0, 0.5)]
    assert told(job) == [
        "Unexpected ranks: rank 3 is not one of this job's 1 processes; set nproc_per_node to 4. "
        "Its lines are in the log of the launcher, or of the rank that started it; its metrics are not kept"
    ]
    owner = as_(people.owner)
    (shown,) = owner.get(f"/api/v1/jobs/{job.pk}/replicas").json()["results"]
    assert [(one["rank"], one["state"], one["exit_code"]) for one in shown["unexpected_ranks"]] == [
        (2, "running", None), (3, "failed", 1),
    ]  # fmt: skip
    page = owner.get(f"/jobs/{job.pk}").content.decode()
    assert "Unexpected rank 3</b> on worker-0: exited with code 1" in page
    assert "set nproc_per_node to 4" in page


def test_a_helper_with_its_own_rank_overwrites_no_exit_code(lab):
    job = lab.running(nodes=1, nproc_per_node=2)
    apply.apply_batch(
        identity=identity(job),
        batch=batch(
            1, *(rank(number, "running") for number in (0, 1)),
            item("rank", rank=77, local_rank=0, pid=5, state="running", at=T),
            item("metrics", rank=77, points=[[T, 1, {"queue": 3.0}]]),
            item("rank", rank=77, local_rank=0, state="succeeded", exit_code=0, at=T),
            rank(0, "failed", exit_code=3), rank(1, "failed", exit_code=4),
        ),
    )  # fmt: skip
    assert list(Rank.objects.filter(job=job).values_list("rank", "exit_code")) == [(0, 3), (1, 4)]
    (note,) = told(job)
    assert note.startswith(
        "Unexpected ranks: rank 77 is not one of this job's 2 processes; unset RANK in processes that are not ranks"
    )


def test_the_local_world_size_reported_by_a_launcher_is_used_at_once(job):
    apply.apply_batch(identity=identity(job), batch=batch(1, rank(2, "running", local_world_size=4)))
    assert "rank 2 is not one of this job's 1 processes; set nproc_per_node to 4" in told(job)[0]


def test_a_rank_of_another_replica_is_reported_with_its_replica(lab):
    job = lab.running(nodes=2, nproc_per_node=2)
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, rank(1, "running"), log_item(1, 0, [(T, "x")])))
    assert "rank 1 is not one of the 2 processes of worker-1" in told(job)[0]
    assert Rank.objects.get(job=job, rank=1).state == "waiting"
    assert (texts(job, 1), texts(job, -1)) == ([], ["x"])


@pytest.mark.parametrize("number", [-1, -7, 2**31, 10**40])
def test_an_invalid_rank_number_affects_only_its_own_items(job, number):
    odd = item("rank", rank=number, local_rank=0, state="running", at=T)
    some = odd, item("sample", rank=number, at=T, cpu=1.0), rank(0, "running"), log_item(number, 0, [(T, "odd")])
    assert apply.apply_batch(identity=identity(job), batch=batch(1, *some))[0] == 1
    assert Rank.objects.get(job=job).state == "running"
    assert texts(job, -1) == ["odd"]
    assert Replica.objects.get(job=job).unexpected_ranks == {}


def test_the_number_of_stored_unexpected_ranks_is_bounded(job):
    items = [item("rank", rank=number, local_rank=number, state="running", at=T) for number in range(1, 5000)]
    apply.apply_batch(identity=identity(job), batch=batch(1, *items, log_item(4999, 0, [(T, "last")])))
    assert len(Replica.objects.get(job=job).unexpected_ranks) == 64
    assert texts(job, -1) == ["last"]
    assert len(told(job)) == 1


def kept(job) -> dict[str, tuple[str | None, int | None]]:
    return {
        number: (one["state"], one["exit_code"])
        for number, one in Replica.objects.get(job=job).unexpected_ranks.items()
    }


def send(job, seq: int, *items) -> None:
    assert apply.apply_batch(identity=identity(job), batch=batch(seq, *items))[0] == seq


def test_an_unexpected_rank_that_has_ended_does_not_run_again(job):
    send(job, 1, rank(2, "running"), rank(2, "failed", exit_code=3))
    send(job, 2, rank(2, "running", pid=9), rank(2, "succeeded", exit_code=0))
    assert kept(job) == {"2": ("failed", 3)}


@pytest.mark.parametrize("is_attempt_over", [True, False])
def test_an_unexpected_rank_of_a_replica_that_has_ended_may_end_but_not_start(job, lab, is_attempt_over):
    send(job, 1, rank(2, "running"), rank(3, "running"))
    if is_attempt_over:
        job = lab.finish(job, 1)
        assert job.is_finished
    else:
        Replica.objects.filter(job=job).update(state="failed")
    send(job, 2, rank(2, "failed", exit_code=3), rank(4, "running"), rank(5, "running"), rank(5, "failed", exit_code=5))
    assert kept(job) == {"2": ("failed", 3), "3": ("running", None), "4": (None, None), "5": ("failed", 5)}


def test_a_replica_that_ends_while_a_batch_is_parsed_counts_as_ended(job):
    row = replica_rows.find(identity(job))
    changes = translate.read(batch(1, rank(2, "running")), baseline=row.baseline(frozenset()), now=T)
    Replica.objects.filter(job=job).update(state="succeeded")
    assert replica_rows.write(row, seq=1, changes=changes, path="") is not None
    assert kept(job) == {"2": (None, None)}


def test_ranks_that_nobody_planned_have_rows_lines_and_metrics_of_their_own(lab, as_, people):
    job = lab.running(nodes=2, nproc_per_node=2)
    apply.apply_batch(
        identity=identity(job, 1),
        batch=batch(
            1, *(rank(number, "running", pid=number) for number in (4, 7, 8)),
            log_item(7, 0, [(T, "I am the eighth")]), log_item(8, 0, [(T, "I am the ninth")]),
            item("metrics", rank=7, points=[[T, 1, {"loss": 0.5}]]), item("sample", rank=7, at=T, cpu=1.0),
        ),
    )  # fmt: skip
    found = Rank.objects.filter(job=job, rank__gte=4).values_list("rank", "state", "pid", "replica__index", "lines")
    assert list(found) == [(4, "running", 4, 1, 0), (7, "running", 7, 1, 1)]
    assert (texts(job, 7), texts(job, -1)) == (["I am the eighth"], ["I am the ninth"])
    assert [(one.rank, one.points[0][2]) for one in metrics.series(job=job, names=["loss"])] == [(7, 0.5)]
    (note,) = told(job)
    assert "rank 8 is not one of this job's 4 processes" in note
    apply.apply_batch(identity=identity(job, 1), batch=batch(2, rank(7, "failed", exit_code=9)))
    assert Rank.objects.get(job=job, rank=7).exit_code == 9
    page = as_(people.owner).get(f"/jobs/{job.pk}").content.decode()
    assert "Unexpected rank 8" in page and "Unexpected rank 7" not in page


def test_a_replica_that_has_ended_gets_no_further_ranks(lab):
    job = lab.running(nodes=1, nproc_per_node=2)
    Replica.objects.filter(job=job).update(state="failed")
    send(job, 1, rank(2, "running"))
    assert not Rank.objects.filter(job=job, rank=2).exists()
    assert kept(job) == {"2": (None, None)}


def test_a_plain_job_that_starts_a_launcher_is_told_to_use_torchrun(lab):
    job = lab.running(framework="plain", command=["bash", "-c", "torchrun --nproc_per_node=4 x.py"], nodes=1)
    apply.apply_batch(identity=identity(job), batch=batch(1, rank(2, "running", local_world_size=4)))
    assert "submit it with framework=torchrun and nproc_per_node=4" in told(job)[0]


def test_a_controller_takes_over_ranks_that_still_wait(lab):
    """As of a Monarch script that starts its processes on this_host()."""
    job = lab.running(framework="monarch", command=["python", "train.py"], nodes=1, nproc_per_node=2)
    mesh, controller = identity(job, role="mesh"), identity(job, role="controller")
    apply.apply_batch(identity=mesh, batch=batch(1, rank(1, "running", pid=11)))
    apply.apply_batch(identity=controller, batch=batch(1, rank(0, "running", pid=12), rank(1, "running", pid=13)))
    rows = Rank.objects.filter(job=job).order_by("rank").values_list("rank", "replica__role", "state")
    assert list(rows) == [(0, "controller", "running"), (1, "mesh", "running")]


def test_a_worker_takes_over_none(lab):
    job = lab.running(nodes=2, nproc_per_node=1)
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, rank(0, "running", pid=12)))
    rows = Rank.objects.filter(job=job).order_by("rank").values_list("rank", "replica__index", "state")
    assert list(rows) == [(0, 0, "waiting"), (1, 1, "waiting")]


def test_more_ranks_than_were_planned_are_counted(lab, as_, people):
    job = lab.running(command=["bash", "run.sh"], nodes=1, nproc_per_node=1)
    apply.apply_batch(identity=identity(job), batch=batch(1, rank(0, "running", pid=1), rank(1, "running", pid=2)))
    assert as_(people.owner).get(f"/api/v1/jobs/{job.pk}").json()["ranks"]["total"] == 2
    assert "1 × 1 = 1 rank planned, 2 started" in as_(people.owner).get(f"/jobs/{job.pk}").content.decode()
    assert "2 of 2" in as_(people.owner).get("/jobs").content.decode()
