"""Time limits on real pods: the start timeout, the deadline, and the age of tombstones. The clock is moved."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import services
from jobs.control import judgement
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.lifecycle import Phase
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from tests.cluster.api.test_life import Life
from tests.support.patience import until

IMAGE = {"Content-Type": "application/strategic-merge-patch+json"}


class Later(Life):
    """A `Life` whose own clock and cluster's clock can be moved forward."""

    ahead = 0.0

    def __init__(self, place, queue, user, **options):
        super().__init__(place, queue, user, clock=lambda: time.time() + self.ahead, **options)

    def until(self, job: Job, *phases: Phase) -> Job:
        def there() -> Job | None:
            schedule()
            visit(
                job.pk, store=DjangoStore(), clusters=lambda _: self.cluster, clock=self.clock, owner="test",
                judge=judgement.judge,
            )  # fmt: skip
            job.refresh_from_db()
            return job if job.phase in phases else None

        return until(there)

    def clock(self):
        return timezone.now() + timedelta(seconds=self.ahead)

    def told(self, job: Job) -> list[str]:
        return [event.message for event in job.events.order_by("id")]


@pytest.fixture
def queue(team) -> Queue:
    return Queue.objects.create(name="gpus", team=team, cluster="local", nominal=32, resource="gpu", gpus_per_node=8)


def test_a_job_past_its_deadline_ends_with_all_its_pods(place, people, queue):
    life = Later(place, queue, people.owner)
    job = life.submit(deadline_seconds=600)
    life.ahead = 300
    assert life.until(job, *Phase).phase == Phase.RUNNING
    life.ahead = 601
    life.until(job, Phase.FAILED)
    assert "ran longer than its deadline of 600 s" in life.told(job) and place.pods() == {}


def test_a_gang_that_exceeds_its_start_timeout_releases_its_quota_and_is_retried(place, people, queue):
    life = Later(place, queue, people.owner, IMAGE="rig/waits")
    job = life.submit_only(start_timeout_seconds=300)
    until(lambda: life.until(job, Phase.STARTING) and len(place.pods()) == 2)
    life.ahead = 301
    until(lambda: life.until(job, *Phase).attempt == 2)
    assert "not all replicas were running within 300 s" in life.told(job)
    assert job.events.filter(kind="step", phase=Phase.QUEUED, attempt=1).exists(), "others had their turn in between"
    until(lambda: life.until(job, Phase.STARTING) and sorted(place.pods()) == [life.pod(job, 0), life.pod(job, 1)])
    for index in range(2):
        body = {"spec": {"containers": [{"name": "replica", "image": "x:1"}]}}
        assert place.admin.patch(place.path("pods", life.pod(job, index)), headers=IMAGE, json=body).status_code == 200
    life.until(job, Phase.RUNNING)


def test_a_job_that_finds_no_place_twice_for_the_same_reason_fails_with_it(place, people, queue):
    life = Later(place, queue, people.owner, NODE_SELECTOR={"rig/group": "nowhere"})
    job = life.submit_only(start_timeout_seconds=300)
    for attempt in (1, 2):
        until(
            lambda attempt=attempt: (
                life.until(job, *Phase).attempt == attempt and str(place.pods()).count("Unschedulable") == 2
            )
        )
        life.ahead += 301
    life.until(job, Phase.FAILED)
    assert job.message.startswith("no place for it in two starts of 300 s: worker-0: 0 of ")
    assert [(one.outcome, one.reason) for one in job.attempts.all()] == [
        ("queued", "start_timeout"),
        ("failed", "failed"),
    ]
    assert job.attempt_failures.get(attempt=2).kind == "no_place" and place.pods() == {}


def test_the_watch_removes_the_tombstone_of_a_finished_job_after_its_time(place, people, queue):
    life = Later(place, queue, people.owner)
    job = life.submit()
    following = life.cluster.changes()
    until(lambda: next(following) == "")
    services.cancel(job=job, by=people.owner)
    life.until(job, Phase.CANCELLED)
    until(lambda: [one.is_sealed for one in life.cluster.view().owners.everything()] == [True])
    life.ahead = 1800
    until(lambda: next(following) == "")
    assert len(place.admin.get(place.path("services")).json()["items"]) == 1
    life.ahead = 7200
    until(lambda: next(following) is not None and place.admin.get(place.path("services")).json()["items"] == [])
