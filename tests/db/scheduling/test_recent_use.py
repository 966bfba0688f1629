"""What a team borrowed lately counts when several want to borrow, less with time."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Team
from common import faultpoints
from jobs.control import recent_use
from jobs.core.lifecycle import Phase, StopReason
from jobs.models import Attempt, Job, RemovedJob
from jobs.scheduling.scheduler import schedule
from queues import cohorts, services
from queues.models import Queue, RecentUse
from tests.support.builders import Lab

WEEK = timedelta(hours=168)


@pytest.fixture
def three(lab, people) -> list[Lab]:
    """Queues of three teams in one cohort: only the first team has quota, which the others may borrow."""
    cohorts.make_flavor(by=None, name="slots", cluster=lab.queue.cluster, resource="cpu")
    cohorts.set_cohort(by=None, name="all")
    cohorts.set_quota(by=None, team=lab.queue.team, flavor="slots", nominal=8, cohort="all")
    services.change(queue=lab.queue, by=None, flavor="slots", borrowing_limit=None)
    found = [lab]
    for name in ("left", "right"):
        team = Team.objects.create(name=name)
        cohorts.set_quota(by=None, team=team, flavor="slots", nominal=1, cohort="all")
        queue = services.make(
            by=None, name=name, team=name, cluster=lab.queue.cluster, slots=1, flavor="slots", borrowing_limit=None
        )
        found.append(Lab(queue, people.admin))
    return found


def ran(lab: Lab, *, slots: int, ago: timedelta, lasted: timedelta) -> Job:
    """A job that ended so long ago and had held so many slots."""
    job, end = lab.submit(nodes=1, nproc_per_node=1), timezone.now() - ago
    Job.objects.filter(pk=job.pk).update(phase=Phase.SUCCEEDED, attempt=1, slots=slots, finished_at=end)
    reason = StopReason.COMPLETED
    Attempt.objects.create(
        job=job, number=1, launched_at=end - lasted, ended_at=end, reason=reason, outcome="succeeded"
    )
    return job


def noted(lab: Lab) -> float:
    return RecentUse.objects.get(queue=lab.queue).slots


def test_a_moment_counts_half_after_a_half_life(three):
    _, left, right = three
    ran(left, slots=4, ago=timedelta(), lasted=WEEK)
    ran(right, slots=4, ago=WEEK, lasted=WEEK)
    recent_use.note(now=timezone.now())
    assert noted(left) == pytest.approx(2.0, abs=0.01), "4 slots for one half-life"
    assert noted(right) == pytest.approx(1.0, abs=0.01), "the same, one half-life ago"
    recent_use.note(now=timezone.now() + WEEK)
    assert (noted(left), noted(right)) == (pytest.approx(1.0, abs=0.01), pytest.approx(0.5, abs=0.01)), "summed anew"


def test_jobs_that_run_still_and_removed_ones_count(three):
    _, left, right = three
    job = left.running(nodes=1, nproc_per_node=2)
    now = timezone.now()
    Attempt.objects.filter(job=job).update(launched_at=now - WEEK)
    RemovedJob.objects.create(
        id=job.pk + 1000, uid="gone", name="gone", framework="torchrun", team=right.queue.team, queue=right.queue, user=right.user,
        slots=2, phase="succeeded", attempt=1, created_at=now - WEEK, finished_at=now, held_seconds=WEEK.total_seconds(),
    )  # fmt: skip
    recent_use.note(now=now)
    assert noted(left) == noted(right) == pytest.approx(1.0, abs=0.01)


def test_who_borrowed_less_lately_borrows_first(three):
    _, left, right = three
    ran(left, slots=8, ago=timedelta(hours=1), lasted=WEEK)
    first, second = left.submit(nodes=1, nproc_per_node=8), right.submit(nodes=1, nproc_per_node=8)
    recent_use.note(now=timezone.now())
    schedule()
    phases = [Job.objects.get(pk=one.pk).phase for one in (first, second)]
    assert phases == [Phase.QUEUED, Phase.ADMITTED], "the older job is of the team that borrowed all week"


def test_the_older_job_is_first_where_the_past_does_not_count(three, settings):
    _, left, right = three
    ran(left, slots=8, ago=timedelta(hours=1), lasted=WEEK)
    recent_use.note(now=timezone.now())
    settings.MUSTER_FAIR_SHARE_HALF_LIFE = 0
    recent_use.note(now=timezone.now())
    assert not RecentUse.objects.exists()
    first, second = left.submit(nodes=1, nproc_per_node=8), right.submit(nodes=1, nproc_per_node=8)
    schedule()
    assert [Job.objects.get(pk=one.pk).phase for one in (first, second)] == [Phase.ADMITTED, Phase.QUEUED]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_meanwhile_is_made_up_for(three, monkeypatch, when):
    def dies(name: str) -> None:
        if name == f"recent_use.note.{when}":
            raise KeyboardInterrupt(name)

    ran(three[1], slots=4, ago=timedelta(), lasted=WEEK)
    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "point", dies)
        with pytest.raises(KeyboardInterrupt):
            recent_use.note(now=timezone.now())
    recent_use.note(now=timezone.now())
    assert noted(three[1]) == pytest.approx(2.0, abs=0.01)


def test_queues_that_share_nothing_are_not_summed(lab):
    recent_use.note(now=timezone.now())
    assert Queue.objects.exists() and not RecentUse.objects.exists()
