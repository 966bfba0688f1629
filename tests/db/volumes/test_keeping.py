"""Keepers of claims: the folders of removed jobs go, and only those; volumes that nobody mounts are looked at."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.clusters import adapters
from jobs.clusters.memory import KEEPER_SECONDS, MemoryCluster
from jobs.control import keeping
from jobs.logs import removal
from jobs.models import Job, RemovedJob
from queues.models import Queue
from tests.support.builders import Clock
from tests.support.keepers import check_one_that_does_not_start
from volumes import services
from volumes.keeping import failed, pause_after
from volumes.models import KeeperVisit, LeftFolder, Volume
from volumes.use import Use

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(lab, on_pods):
    """The lab, whose cluster has a claim with folders of jobs."""
    lab.queue, lab.cluster = on_pods, adapters.get(on_pods.cluster)
    lab.cluster.clock, lab.cluster.run_seconds = lab.clock.seconds, 1e9
    lab.cluster.job_claim = "scratch"
    return lab


def ended(lab, **sent) -> Job:
    """A job that has a folder in the claim, and that may be removed."""
    job = lab.running(ttl_seconds=1, **sent)
    lab.cluster.folders.setdefault("scratch", set()).add(job.run)
    return lab.finish(job, 0, 0)


def remove(*jobs: Job) -> None:
    assert removal.remove_due(now=max(job.finished_at for job in jobs) + timedelta(minutes=30)) == len(jobs)


def turn(lab, seconds: float = 0.0) -> None:
    keeping.keep_all(now=timezone.now() + timedelta(seconds=seconds))


def test_a_removed_job_s_folder_goes_and_is_forgotten_with_the_keeper_s_answer(kept):
    job, stays = ended(kept), ended(kept)
    turn(kept)
    assert not LeftFolder.objects.exists() and kept.cluster.keepers == {}, "nothing was removed"
    Job.objects.filter(pk=stays.pk).update(ttl_seconds=None)
    remove(job)
    row = LeftFolder.objects.get()
    assert (row.job, row.cluster, row.claim) == (job.pk, kept.queue.cluster, "scratch")
    assert (row.path, row.run) == ("jobs", job.run)
    turn(kept, 3600)
    assert kept.cluster.folders["scratch"] == {job.run, stays.run} and LeftFolder.objects.exists(), "a keeper was made"
    assert KeeperVisit.objects.get().folders == [job.run]
    turn(kept, 3660)
    assert kept.cluster.folders["scratch"] == {stays.run}
    assert not LeftFolder.objects.exists() and not KeeperVisit.objects.exists() and kept.cluster.keepers == {}


def test_the_row_is_written_with_the_removal_or_not_at_all(kept, monkeypatch):
    job = ended(kept)

    def fail(*_, **__):
        raise RuntimeError("the process dies here")

    monkeypatch.setattr(Job, "delete", fail)
    with pytest.raises(RuntimeError):
        remove(job)
    assert not LeftFolder.objects.exists() and not RemovedJob.objects.exists()
    assert Job.objects.filter(pk=job.pk).exists()


def test_a_job_that_never_began_and_a_cluster_without_such_folders_leave_nothing(kept):
    job = ended(kept)
    kept.cluster.job_claim = ""
    remove(job)
    assert not LeftFolder.objects.exists()


def test_a_folder_stays_while_a_job_that_began_from_it_has_not_ended(kept):
    first = ended(kept)
    second = kept.running(from_job=first.pk)
    remove(first)
    for seconds in (3600, 7200):
        turn(kept, seconds)
    assert kept.cluster.keepers == {} and first.run in kept.cluster.folders["scratch"]
    kept.finish(second, 0, 0)
    for seconds in (9000, 9060):
        turn(kept, seconds)
    assert first.run not in kept.cluster.folders["scratch"]


def test_the_folder_of_a_job_that_has_a_row_is_never_deleted(kept):
    """As after a restored backup, or by a mistake of ours."""
    job = ended(kept)
    LeftFolder.objects.create(job=job.pk, run=job.run, cluster=kept.queue.cluster, claim="scratch", path="jobs")
    for seconds in (60, 120):
        turn(kept, seconds)
    assert kept.cluster.keepers == {} and kept.cluster.folders["scratch"] == {job.run}


def test_a_claim_has_one_keeper_at_a_time_with_many_folders(kept):
    jobs = [ended(kept) for _ in range(2)]
    remove(*jobs)
    turn(kept, 3600)
    jobs.append(ended(kept))
    remove(jobs[2])
    kept.cluster.keepers_start = False
    turn(kept, 3601)
    assert [asked.folders for asked, _ in kept.cluster.keepers.values()] == [tuple(job.run for job in jobs[:2])]
    kept.cluster.keepers_start = True
    for seconds in (3660, 3720, 3780):
        turn(kept, seconds)
    assert kept.cluster.folders["scratch"] == set() and not LeftFolder.objects.exists()


def test_two_processes_do_not_work_on_one_keeper(kept):
    remove(ended(kept))
    turn(kept, 3600)
    KeeperVisit.objects.update(busy_until=timezone.now() + timedelta(seconds=30))
    turn(kept, 3660)
    assert len(kept.cluster.keepers) == 1
    KeeperVisit.objects.update(busy_until=timezone.now() - timedelta(seconds=1))  # the other one died
    turn(kept, 3660)
    assert not LeftFolder.objects.exists()


def test_a_keeper_that_does_not_start_is_given_up_and_made_again_after_a_growing_pause(kept, caplog):
    remove(ended(kept))
    kept.cluster.keepers_start, at, pauses = False, 3600.0, []
    for _ in range(3):
        turn(kept, at)
        assert len(kept.cluster.keepers) == 1
        kept.clock.advance(KEEPER_SECONDS + 1)
        turn(kept, at)
        row = KeeperVisit.objects.get()
        assert row.asked_at is None and "no node takes it" in row.message and kept.cluster.keepers == {}
        pause = (row.next_try_at - timezone.now()).total_seconds() - at
        turn(kept, at + pause - 5)
        assert kept.cluster.keepers == {}, "it pauses"
        pauses.append(round(pause / 60))
        at += pause + 5
    assert pauses == [2, 4, 8] and "no node takes it; the next one is made in" in caplog.text
    assert pause_after(50) == timedelta(days=1)
    kept.cluster.keepers_start = True
    turn(kept, at)
    turn(kept, at + 60)
    assert not LeftFolder.objects.exists() and not KeeperVisit.objects.exists()


def test_a_folder_that_cannot_be_deleted_pauses_for_itself(kept):
    stuck, other = ended(kept), ended(kept)
    remove(stuck, other)
    kept.cluster.stuck_folders[stuck.run] = "Permission denied"
    turn(kept, 3600)
    turn(kept, 3660)
    row = LeftFolder.objects.get()
    assert (row.run, row.tries, row.message) == (stuck.run, 1, "Permission denied")
    turn(kept, 3661)
    assert kept.cluster.keepers == {}
    kept.cluster.stuck_folders.clear()
    for seconds in (3900, 3960):
        turn(kept, seconds)
    assert not LeftFolder.objects.exists()


def test_a_cluster_that_does_not_answer_is_asked_again(kept):
    remove(ended(kept))
    kept.cluster.is_reachable = False
    turn(kept, 3600)
    assert KeeperVisit.objects.get().busy_until is None
    kept.cluster.is_reachable = True
    for seconds in (3660, 3720):
        turn(kept, seconds)
    assert not LeftFolder.objects.exists()


def bound(lab, people, name: str = "data", **changes) -> Volume:
    row = services.create(team=lab.queue.team, by=people.admin, name=name, cluster=lab.queue.cluster, size="1Gi")
    Volume.objects.filter(pk=row.pk).update(**{"state": "bound", **changes})
    return Volume.objects.get(pk=row.pk)


def test_a_volume_that_nobody_mounts_is_looked_at_once_a_day(kept, people):
    row, now = bound(kept, people), timezone.now()
    kept.cluster.use = Use(1000, 400, now.timestamp() - 50)
    turn(kept)
    turn(kept)
    row.refresh_from_db()
    assert (row.total_bytes, row.free_bytes) == (1000, 400) and row.used_at >= now
    assert abs(row.written_at - (now - timedelta(seconds=50))) < timedelta(seconds=2)
    turn(kept, 23 * 3600)
    assert kept.cluster.keepers == {}
    turn(kept, 25 * 3600)
    assert [asked.folders for asked, _ in kept.cluster.keepers.values()] == [()]


@pytest.mark.parametrize(
    "changes", [{"state": "pending"}, {"removal_asked_at": timezone.now()}, {"access_mode": "ReadWriteOnce"}]
)
def test_volumes_that_no_keeper_mounts(kept, people, changes):
    bound(kept, people, **changes)
    turn(kept)
    assert kept.cluster.keepers == {}


def test_a_volume_that_a_job_mounts_is_left_to_its_agents(kept, people):
    bound(kept, people)
    job = kept.running(volumes=["data"])
    turn(kept)
    assert kept.cluster.keepers == {}
    kept.finish(job, 0, 0)
    turn(kept)
    assert len(kept.cluster.keepers) == 1


def test_what_an_agent_said_meanwhile_stays(kept, people):
    row = bound(kept, people)
    turn(kept)
    later = timezone.now() + timedelta(seconds=20)
    services.record_use(team=row.team_id, cluster=row.cluster, uses={"data": Use(7, 6, later.timestamp())}, now=later)
    turn(kept, 60)
    row.refresh_from_db()
    assert (row.total_bytes, row.used_at) == (7, later) and not KeeperVisit.objects.exists()


def test_a_turn_begins_few_looks(kept, people):
    for number in range(keeping.MOST_LOOKS + 2):
        bound(kept, people, name=f"data-{number}")
    turn(kept)
    assert len(kept.cluster.keepers) == keeping.MOST_LOOKS


def test_a_cluster_without_keepers_has_none(lab, people, settings):
    Volume.objects.create(team=lab.queue.team, cluster=lab.queue.cluster, name="data", state="bound")
    queue = Queue.objects.get(pk=lab.queue.pk)
    assert queue.cluster == "local"
    LeftFolder.objects.create(job=1, run="1-abc", cluster="gone", claim="scratch")
    assert keeping.keep_all(now=timezone.now()) == 0 and not KeeperVisit.objects.exists()


def test_the_fake_keeps_the_contract():
    clock = Clock()
    cluster = MemoryCluster(clock.seconds)
    cluster.keepers_start = False
    check_one_that_does_not_start(cluster, keepers=lambda: len(cluster.keepers), advance=clock.advance)


def test_the_page_of_a_volume_shows_its_keeper_as_muster_s_own(kept, people, client):
    row = bound(kept, people)
    client.force_login(people.owner)
    address = f"/teams/{row.team.name}/volumes/{row.name}"
    assert "Keeper" not in client.get(address).text
    turn(kept)
    assert "a pod of Muster's own looks at it" in client.get(address).text
    failed(KeeperVisit.objects.get(), message="its image <b>cannot</b> be pulled", now=timezone.now())
    page = client.get(address).text
    assert "could not look at it: its image &lt;b&gt;cannot" in page
