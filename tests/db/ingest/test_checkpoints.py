"""What agents list of a job's checkpoints: the rows are the newest listing."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common import faultpoints
from common.errors import InvalidInput
from jobs.analysis import checkpoints
from jobs.core import checkpoints as seen
from jobs.ingest import apply, checkpoint_rows
from jobs.models import Checkpoint, Job
from tests.support.builders import batch, identity, item

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(lab):
    return lab.running()


class Agent:
    """Sends batches of a job's first replica."""

    def __init__(self, job: Job) -> None:
        self.who, self.seq = identity(job), 0

    def lists(self, *found: dict[str, object], seconds: float = 0) -> None:
        self.seq += 1
        now = timezone.now().timestamp() + seconds
        apply.apply_batch(
            identity=self.who, batch=batch(self.seq, item("checkpoints", at=now, checkpoints=list(found)))
        )


def saved(step: int | None = None, name: str = "", size: int | None = 10, at: int = 1_764_000_000) -> dict[str, object]:
    return {"name": name or f"step-{step}", "step": step, "bytes": size, "written_at": at}


def rows(job: Job) -> list[tuple[str, int | None, int | None, int]]:
    return [(row.name, row.step, row.size_bytes, row.attempt) for row in job.checkpoints.all()]


def test_the_rows_of_a_job_are_the_newest_listing(job):
    agent = Agent(job)
    agent.lists(saved(1), saved(2))
    assert rows(job) == [("step-1", 1, 10, 1), ("step-2", 2, 10, 1)]
    kept = job.checkpoints.get(name="step-2").pk
    agent.lists(saved(2), saved(3, size=None), saved(name="last.pt"), seconds=1)
    assert set(rows(job)) == {("step-2", 2, 10, 1), ("step-3", 3, None, 1), ("last.pt", None, 10, 1)}
    assert job.checkpoints.get(name="step-2").pk == kept
    assert len(set(job.checkpoints.values_list("seen_at", flat=True))) == 1
    agent.lists(seconds=2)
    assert rows(job) == []


def test_a_later_attempt_keeps_what_it_does_not_change(lab):
    job = lab.running(max_retries=1)
    Agent(job).lists(saved(1), saved(name="last.pt"))
    lab.finish(job, 1, 1)
    lab.visit(job, times=2)
    assert job.attempt == 2
    Agent(job).lists(saved(1), saved(name="last.pt", at=1_764_000_009), seconds=1)
    assert set(rows(job)) == {("step-1", 1, 10, 1), ("last.pt", None, 10, 2)}


def test_a_listing_that_comes_late_is_ignored(job):
    agent = Agent(job)
    agent.lists(saved(2))
    agent.lists(saved(1), seconds=-5)
    assert rows(job) == [("step-2", 2, 10, 1)]


def test_only_what_changed_is_worth_a_hint_to_pages(job):
    one = (seen.Checkpoint("step-1", 1, 10, 1_764_000_000.0),)
    changes = [
        checkpoint_rows.record(job=job.pk, attempt=1, listing=seen.Listing(1_764_000_000.0 + number, listed))
        for number, listed in enumerate([one, one, (), ()])
    ]
    assert changes == [True, False, True, False]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_while_it_writes_a_listing_gets_the_batch_again(job, monkeypatch, when):
    agent = Agent(job)

    def dies(point: str) -> None:
        if point == f"ingest.checkpoints.{when}":
            raise KeyboardInterrupt(point)

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "point", dies)
        with pytest.raises(KeyboardInterrupt):
            agent.lists(saved(1))
    agent.seq -= 1
    agent.lists(saved(1), seconds=1)
    assert rows(job) == [("step-1", 1, 10, 1)]
    assert job.replicas.get(index=0).batch_seq == 1


@pytest.mark.parametrize(
    ("listed", "field"),
    [
        ("none", "checkpoints"), ([1], "checkpoints"), ([saved(1)] * 1001, "checkpoints"), ([{**saved(1), "name": ""}], "name"),
        ([saved(-1, "x")], "step"), ([saved(1, size=-1)], "bytes"), ([saved(1, at=2**36)], "written_at"), ([saved(2**60, "x")], "step"),
    ],
)  # fmt: skip
def test_what_no_row_can_hold_is_refused_by_its_field(job, listed, field):
    with pytest.raises(InvalidInput) as caught:
        apply.apply_batch(identity=identity(job), batch=batch(1, item("checkpoints", at=1.0, checkpoints=listed)))
    assert caught.value.problems[0].field == f"checkpoints.{field}"


def test_rows_go_with_the_job(job):
    Agent(job).lists(saved(1))
    job.delete()
    assert not Checkpoint.objects.exists()


def test_the_time_of_the_latest_checkpoint_is_that_of_one_with_a_step_where_any_has_one(job):
    assert checkpoints.latest_at(job) is None
    agent = Agent(job)
    agent.lists(saved(name="train.log", at=1_764_000_500))
    assert checkpoints.latest_at(job).timestamp() == 1_764_000_500
    agent.lists(saved(1), saved(2, at=1_764_000_100), saved(name="train.log", at=1_764_000_500), seconds=1)
    assert checkpoints.latest_at(job).timestamp() == 1_764_000_100
    assert timezone.now() - job.checkpoints.first().seen_at < timedelta(minutes=1)
