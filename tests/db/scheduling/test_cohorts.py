"""Teams of a cohort lend each other quota and take it back: rows, locks, preemption and what is said of it."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from accounts.models import Membership, Role, Team, Token
from common.errors import InvalidSpec
from jobs.clusters.memory import MemoryCluster
from jobs.core.lifecycle import Phase, StopReason
from jobs.models import Attempt, Checkpoint, Job, JobEvent
from jobs.scheduling import holding, quota_use, waiting
from jobs.scheduling.quota_use import use_of
from jobs.scheduling.scheduler import schedule, schedule_queue
from queues import cohorts, services, trees
from queues.models import Queue, TeamQuota
from tests.db.api.test_api import Api
from tests.support.builders import Lab


@pytest.fixture
def other(lab, people) -> Lab:
    """A queue of another team in the same cohort: each team has 8 CPU slots, and may borrow what the other does not use."""
    beside = Team.objects.create(name="beside")
    Membership.objects.create(team=beside, user=people.owner, role=Role.ADMIN)
    cohorts.make_flavor(by=None, name="slots", cluster=lab.queue.cluster, resource="cpu")
    cohorts.set_cohort(by=None, name="all")
    for team in (lab.queue.team, beside):
        cohorts.set_quota(by=None, team=team, flavor="slots", nominal=8, cohort="all")
    services.change(queue=lab.queue, by=None, flavor="slots", borrowing_limit=None)
    made = services.make(
        by=None, name="beside", team="beside", cluster=lab.queue.cluster, slots=8, flavor="slots", borrowing_limit=None
    )
    lab.queue.refresh_from_db()
    beside = Lab(made, people.owner)
    beside.cluster, beside.clock = lab.cluster, lab.clock
    return beside


def running(lab: Lab, slots: int, **sent) -> Job:
    job = lab.running(nodes=slots, nproc_per_node=1, **sent)
    assert job.phase == Phase.RUNNING
    return job


def test_a_team_borrows_and_gives_back_and_the_victim_waits_with_its_place_kept(lab, other):
    own, borrowed = running(other, 8), running(other, 6, max_retries=2)
    mine = lab.submit(nodes=4, nproc_per_node=2)
    assert schedule() == 0
    mine.refresh_from_db()
    assert mine.wait_code == "preempting"
    assert (
        mine.wait_reason
        == f"needs 8 CPU slots, which job {borrowed.pk} was asked to give back; starts when it has ended"
    )
    said = JobEvent.objects.get(job=borrowed, kind="note", message__startswith="asked to give its quota back")
    assert f"a job of team {mine.team.name} has a better right to it" in said.message, "neither its name nor its number"
    assert waiting.of_job(mine).reason.code == "preempting"
    schedule()
    assert JobEvent.objects.filter(job=borrowed, kind="note", message__startswith="asked to give").count() == 1
    place = borrowed.created_at
    other.visit(borrowed)
    assert (borrowed.phase, borrowed.stop_reason) == (Phase.STOPPING, StopReason.PREEMPTED)
    assert schedule() == 0, "its quota is held until its replicas are gone"
    other.visit(borrowed, times=3)
    assert (borrowed.phase, borrowed.failures, borrowed.created_at) == (Phase.QUEUED, 0, place)
    assert borrowed.preempt_requested_at is None
    assert schedule() == 1
    mine.refresh_from_db()
    own.refresh_from_db()
    assert (mine.phase, own.phase, own.preempt_requested_at) == (Phase.ADMITTED, Phase.RUNNING, None)
    borrowed.refresh_from_db()
    assert borrowed.wait_code == "waiting_for_quota" and "borrow" in borrowed.wait_reason


def test_who_came_no_further_since_it_was_preempted_is_spared_until_it_saved_something(lab, other):
    own, borrowed = running(other, 8, priority=1), running(other, 8)
    Attempt.objects.filter(job=borrowed).update(
        reason=StopReason.PREEMPTED, outcome=Phase.QUEUED, ended_at=timezone.now()
    )
    Job.objects.filter(pk=borrowed.pk).update(attempt=borrowed.attempt + 1)
    lab.submit(nodes=4, nproc_per_node=2)
    schedule()
    borrowed.refresh_from_db()
    own.refresh_from_db()
    assert borrowed.preempt_requested_at is None and own.preempt_requested_at is not None
    Job.objects.filter(pk=own.pk).update(preempt_requested_at=None)
    written = borrowed.running_at + timedelta(seconds=1)
    Checkpoint.objects.create(
        job=borrowed, name="step-1", written_at=written, attempt=borrowed.attempt, seen_at=written
    )
    schedule()
    borrowed.refresh_from_db()
    assert borrowed.preempt_requested_at is not None


def test_of_equal_ones_the_one_that_saved_last_gives_back(lab, other):
    long_unsaved, saved = running(other, 8), running(other, 8)
    long_ago = timezone.now() - timedelta(hours=2)
    Job.objects.filter(pk__in=[long_unsaved.pk, saved.pk]).update(running_at=long_ago)
    now = timezone.now()
    Checkpoint.objects.create(job=saved, name="step-9", written_at=now, attempt=saved.attempt, seen_at=now)
    lab.submit(nodes=4, nproc_per_node=2)
    schedule()
    asked = Job.objects.filter(preempt_requested_at__isnull=False)
    assert [one.pk for one in asked] == [saved.pk]


def test_a_higher_priority_takes_the_place_of_a_lower_one_where_the_queue_says_so(lab):
    low = running(lab, 8)
    high = lab.submit(nodes=4, nproc_per_node=2, priority=10)
    schedule()
    low.refresh_from_db()
    assert low.preempt_requested_at is None
    services.change(queue=lab.queue, by=None, preempts=True)
    schedule()
    high.refresh_from_db()
    assert high.wait_code == "preempting"
    lab.visit(low, times=4)
    assert low.phase == Phase.QUEUED
    schedule()
    high.refresh_from_db()
    assert high.phase == Phase.ADMITTED


def test_a_job_that_is_tried_again_keeps_its_quota_and_one_that_is_cancelled_gives_it_back(lab, other):
    again, gone = running(other, 8), running(other, 6)
    Job.objects.filter(pk=again.pk).update(phase=Phase.STOPPING, stop_reason=StopReason.RETRY)
    Job.objects.filter(pk=gone.pk).update(phase=Phase.STOPPING, stop_reason=StopReason.CANCELLED)
    leaving = {one.job: one.is_leaving for one in holding.by_queue(trees.sharing(other.queue))[other.queue.pk]}
    assert leaving == {again.pk: False, gone.pk: True}


def test_what_teams_use_borrow_and_lend_is_a_sum_over_rows(lab, other):
    running(other, 8)
    running(other, 6)
    running(lab, 2)
    lab.submit(nodes=4, nproc_per_node=2)
    rows = TeamQuota.objects.select_related("team", "flavor", "cohort")
    ours, theirs = use_of(rows.filter(team=lab.queue.team)) + use_of(rows.filter(team=other.queue.team))
    assert (ours.used, ours.borrowed, ours.lent, ours.waiting, ours.waiting_jobs) == (2, 0, 6, 8, 1)
    assert (theirs.used, theirs.borrowed, theirs.lent, theirs.waiting) == (14, 6, 0, 0)


def test_a_queue_without_a_flavor_shares_nothing(lab, other):
    running(other, 8)
    running(other, 8)
    services.change(queue=lab.queue, by=None, flavor=None)
    assert running(lab, 8).phase == Phase.RUNNING
    beyond = lab.submit(nodes=1, nproc_per_node=1)
    schedule()
    beyond.refresh_from_db()
    assert beyond.wait_reason == "needs 1 CPU slot; queue default has 0 CPU slots free of 8 CPU slots"
    assert Job.objects.filter(preempt_requested_at__isnull=False).count() == 0


def test_what_a_queue_may_borrow_counts_at_submission(lab, other):
    assert trees.most(lab.queue) == 16
    lab.submit(nodes=2, nproc_per_node=8)
    with pytest.raises(InvalidSpec, match="has 16 CPU slots in all with what it may borrow"):
        lab.submit(nodes=3, nproc_per_node=8)
    running(other, 6)
    assert quota_use.free_now(lab.queue) == 10


def test_lists_of_queues_say_what_may_be_borrowed_too(lab, other, as_, people, client):
    running(lab, 8)
    running(other, 6)
    assert quota_use.free_of([lab.queue, other.queue]) == {lab.queue.pk: 2, other.queue.pk: 2}
    page = as_(people.owner).get("/queues").text
    assert page.count("2 free") == 2 and "Full" not in page
    api = Api(client, Token.issue(people.owner, "test")[1])
    assert {one["name"]: one["free"] for one in api.get("/queues").json()["results"]} == {"default": 2, "beside": 2}
    assert api.get("/queues/default").json()["free"] == 2


def test_a_forecast_knows_the_jobs_of_the_other_team(lab, other):
    theirs = running(other, 14, deadline_seconds=600)
    Queue.objects.filter(pk=lab.queue.pk).update(policy="backfill")
    mine = lab.submit(nodes=4, nproc_per_node=1)
    found = waiting.of_job(mine)
    assert found.reason.code == "preempting", "it is within its own, so it would preempt"
    assert found.holders == () and theirs.slots == 14, "jobs of another team are not named"


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_of_two_queues_admit_no_more_than_the_cohort_has(lab, other):
    """Each begins at another queue of the cohort; the second waits for the rows of the first."""
    for beside in (lab, other):
        for _ in range(3):
            beside.submit(nodes=4, nproc_per_node=2)
    begin, problems = threading.Barrier(2), []

    def work(queue: int) -> None:
        try:
            begin.wait()
            schedule_queue(queue)
        except Exception as error:
            problems.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=[one.queue.pk]) for one in (lab, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    held = Job.objects.holding_quota().values_list("queue_id", "slots")
    assert sorted(held) == sorted([(lab.queue.pk, 8), (other.queue.pk, 8)])


@pytest.mark.django_db(transaction=True)
def test_a_scheduler_of_the_release_before_and_this_one_exclude_each_other(lab, other):
    """The one before locks only the queue that it schedules; this one locks that row as well."""
    other.submit(nodes=4, nproc_per_node=2)
    holds, ends = threading.Event(), threading.Event()

    def before() -> None:
        from django.db import transaction

        with transaction.atomic():
            Queue.objects.select_for_update(no_key=True).get(pk=lab.queue.pk)
            holds.set()
            assert ends.wait(60)
        connections.close_all()

    thread = threading.Thread(target=before)
    thread.start()
    assert holds.wait(60)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
    with pytest.raises(Exception, match="lock timeout"):
        schedule_queue(other.queue.pk)
    ends.set()
    thread.join()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = DEFAULT")
    assert schedule_queue(other.queue.pk) == 1


def test_preempted_by_the_memory_cluster_it_goes_on_in_another_attempt(lab, other):
    assert isinstance(lab.cluster, MemoryCluster)
    running(other, 8, priority=1)
    borrowed = running(other, 8)
    mine = lab.submit(nodes=4, nproc_per_node=2)
    schedule()
    other.visit(borrowed, times=4)
    schedule()
    lab.visit(mine, times=3)
    mine.refresh_from_db()
    assert mine.phase == Phase.RUNNING
    lab.finish(mine, 0, 0, 0, 0)
    schedule()
    other.visit(borrowed, times=3)
    assert (borrowed.phase, borrowed.attempt) == (Phase.RUNNING, 2)
