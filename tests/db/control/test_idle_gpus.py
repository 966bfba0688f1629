"""For how long GPUs of attempts were idle: added up once a minute, for what usage calls wasted."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common import faultpoints
from jobs.control import idle_gpus
from jobs.models import Attempt, Job, Rank, Replica

MINUTE = timedelta(minutes=1)


@pytest.fixture
def job(lab) -> Job:
    """A running job whose ranks 0 and 1 of four have been idle for ten minutes."""
    job, now = lab.running(), timezone.now()
    Attempt.objects.filter(job=job).update(launched_at=now - 60 * MINUTE)
    Replica.objects.filter(job=job).update(last_batch_at=now)
    Rank.objects.filter(job=job).update(state="running", gpu=0.9)
    Rank.objects.filter(job=job, rank__in=[0, 1]).update(gpu=0.0, gpu_idle_since=now - 10 * MINUTE)
    return job


def minutes(job: Job) -> float:
    return Attempt.objects.get(job=job).idle_seconds / 60


def test_idle_time_is_added_since_when_it_was_added_last(job):
    now = timezone.now()
    assert idle_gpus.note(now=now) == 1
    assert minutes(job) == pytest.approx(20, abs=0.1), "two GPUs for ten minutes"
    assert idle_gpus.note(now=now) == 0, "once more at the same moment adds nothing"
    Replica.objects.filter(job=job).update(last_batch_at=now + MINUTE)
    idle_gpus.note(now=now + MINUTE)
    assert minutes(job) == pytest.approx(22, abs=0.1)
    Rank.objects.filter(job=job, rank=0).update(gpu_idle_since=None)
    idle_gpus.note(now=now + 1.5 * MINUTE)
    assert minutes(job) == pytest.approx(22.5, abs=0.1), "rank 0 works again"


def test_one_that_becomes_idle_later_counts_from_its_beginning(job):
    now = timezone.now()
    idle_gpus.note(now=now)
    Rank.objects.filter(job=job, rank=2).update(gpu=0.0, gpu_idle_since=now - 3 * MINUTE)
    Replica.objects.filter(job=job).update(last_batch_at=now + 3 * MINUTE)
    idle_gpus.note(now=now + 3 * MINUTE)
    assert minutes(job) == pytest.approx(20 + 2 * 3 + 6, abs=0.1)


@pytest.mark.parametrize(
    "change",
    [
        lambda job, now: Rank.objects.filter(job=job).update(gpu_idle_since=now - 4 * MINUTE),
        lambda job, now: Rank.objects.filter(job=job).update(state="succeeded"),
        lambda job, now: Replica.objects.filter(job=job).update(last_batch_at=now - 5 * MINUTE),
        lambda job, now: Attempt.objects.filter(job=job).update(ended_at=now, outcome="failed"),
    ],
    ids=["not for long", "ended", "silent", "over"],
)
def test_what_is_no_idle_gpu_adds_nothing(job, change):
    now = timezone.now()
    change(job, now)
    assert idle_gpus.note(now=now) == 0 and minutes(job) == 0


def test_idle_time_before_an_attempt_is_not_its_own(job):
    now = timezone.now()
    Attempt.objects.filter(job=job).update(launched_at=now - 2 * MINUTE)
    idle_gpus.note(now=now)
    assert minutes(job) == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_meanwhile_neither_loses_nor_doubles_it(job, monkeypatch, when):
    def dies(name: str) -> None:
        if name == f"idle.note.{when}":
            raise KeyboardInterrupt(name)

    now = timezone.now()
    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "point", dies)
        with pytest.raises(KeyboardInterrupt):
            idle_gpus.note(now=now)
    idle_gpus.note(now=now)
    assert minutes(job) == pytest.approx(20, abs=0.1)
