"""Checks of clusters by pods: one of an image at a time, driven by whichever process is alive, and nothing is left behind."""

from contextlib import contextmanager
from datetime import timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import AuditEntry
from common import faultpoints
from common.errors import Conflict, InvalidInput, NotAllowed
from jobs import clusters
from jobs.control import cluster_checks as driver
from jobs.core import probing
from jobs.models import ClusterCheck
from jobs.submission import cluster_checks
from queues import services
from queues.models import Queue

pytestmark = pytest.mark.django_db
LATER = timedelta(seconds=3)


@pytest.fixture
def cluster(on_pods):
    return clusters.get(on_pods.cluster)


def start(people, **asked) -> ClusterCheck:
    return cluster_checks.start(cluster="local", by=people.admin, **asked)[0]


def drive(row: ClusterCheck, *, most: int = 10, ahead: timedelta = timedelta()) -> ClusterCheck:
    """Go on until nothing is left to do for the check, or `most` turns are over."""
    for turn in range(1, most + 1):
        row.refresh_from_db()
        if row.removed_at is not None:
            break
        driver.go_on(now=timezone.now() + ahead + turn * LATER)
    row.refresh_from_db()
    return row


def test_a_check_is_driven_to_its_findings_and_its_pods_are_deleted(people, cluster):
    row = start(people)
    assert (row.image, row.queue, row.ended_at) == ("memory", None, None)
    assert driver.go_on(now=timezone.now()) == 1
    row.refresh_from_db()
    assert list(cluster.probes) == [row.uid] and row.ended_at is None and row.findings == []
    drive(row)
    assert [(one["about"], one["state"]) for one in row.findings] == [("pods", "ok")]
    assert row.ended_at and row.removed_at and cluster.probes == {}
    assert driver.go_on(now=timezone.now() + timedelta(hours=1)) == 0


def test_only_platform_administrators_may_and_it_is_in_the_audit(people, cluster):
    with pytest.raises(NotAllowed):
        cluster_checks.start(cluster="local", by=people.owner)
    assert not ClusterCheck.objects.exists()
    row = start(people, image="team/train:1")
    entry = AuditEntry.objects.get(act="cluster.check")
    assert (entry.actor_name, entry.target_id) == (people.admin.username, str(row.pk))
    assert entry.after == {"cluster": "local", "image": "team/train:1", "queue": ""}


def test_one_that_is_running_is_not_begun_again(people, cluster):
    row, is_new = cluster_checks.start(cluster="local", by=people.admin)
    assert is_new
    assert cluster_checks.start(cluster="local", by=people.admin) == (row, False)
    other = start(people, image="other:1")
    assert other.pk != row.pk
    drive(row)
    assert start(people).pk not in (row.pk, other.pk)
    assert AuditEntry.objects.filter(act="cluster.check").count() == 3


@pytest.mark.django_db(transaction=True)
def test_of_two_administrators_at_once_both_get_the_same_check(people, cluster):
    ready, found = Barrier(2), []

    def ask() -> None:
        ready.wait()
        found.append(cluster_checks.start(cluster="local", by=people.admin))
        connection.close()

    threads = [Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len({row.pk for row, _ in found}) == 1 and sorted(is_new for _, is_new in found) == [False, True]


def test_a_queue_gives_its_image_and_its_nodes(people, cluster, on_pods):
    Queue.objects.filter(pk=on_pods.pk).update(defaults={"image": "team/queue:1", "node_selector": {"pool": "gpus"}})
    queue = Queue.objects.get(pk=on_pods.pk)
    row = start(people, queue=queue)
    assert (row.image, row.queue) == ("team/queue:1", queue)
    driver.go_on(now=timezone.now())
    shape = cluster.probes[row.uid].shape
    assert (shape.image, dict(shape.node_selector)) == ("team/queue:1", {"pool": "gpus"})
    with pytest.raises(Conflict, match="is being checked"):
        start(people, image="team/queue:1")


def test_what_cannot_be_checked_is_refused_with_every_reason(people, cluster, on_pods, settings):
    elsewhere = Queue.objects.create(name="elsewhere", team=on_pods.team, cluster="other", nominal=1)
    with pytest.raises(InvalidInput, match="leave one of them out") as found:
        start(people, queue=elsewhere, image="Not An Image")
    assert {one.field for one in found.value.problems} == {"image", "queue"}
    settings.CLUSTERS = {"local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {}}}
    with pytest.raises(InvalidInput, match="processes of one machine"):
        start(people)
    with pytest.raises(InvalidInput, match="is no cluster of this installation"):
        cluster_checks.start(cluster="nowhere", by=people.admin)
    assert not ClusterCheck.objects.exists()


def test_a_pod_that_gives_no_answer_is_late_in_the_end(people, cluster):
    cluster.probes_answer = False
    row = drive(start(people), most=3)
    assert row.ended_at is None
    row = drive(row, ahead=probing.LATE)
    assert [(one["state"], one["words"]) for one in row.findings] == [("wrong", "a pod gives no answer")]
    assert row.removed_at and cluster.probes == {}


def test_a_cluster_that_does_not_answer_is_asked_again_and_given_up_in_the_end(people, cluster):
    row = drive(start(people), most=1)
    cluster.is_reachable = False
    drive(row, most=2)
    assert row.ended_at is None
    cluster.is_reachable = True
    drive(row)
    assert row.findings[0]["state"] == "ok"
    cluster.is_reachable = False
    row = drive(start(people), most=2, ahead=probing.GIVEN_UP)
    assert row.findings[0]["about"] == "server" and "did not answer" in row.findings[0]["words"]
    assert row.removed_at is None, "its pods may be there"
    drive(row, ahead=probing.GIVEN_UP + driver.REMOVING + timedelta(minutes=1))
    assert row.removed_at, "by now they have ended by their own deadline"


def test_one_that_nobody_drove_does_not_stand_in_the_way(people, cluster):
    row = start(people)
    ClusterCheck.objects.update(asked_at=timezone.now() - probing.GIVEN_UP - LATER)
    new = start(people)
    row.refresh_from_db()
    assert new.pk != row.pk and row.ended_at and "given up" in row.findings[0]["words"]


def test_a_cluster_that_is_not_configured_any_more_ends_its_checks(people, cluster, settings):
    row = start(people)
    settings.CLUSTERS = {}
    drive(row)
    assert row.removed_at and "is no cluster of this installation" in row.findings[0]["words"]


def test_two_processes_do_not_work_on_one(people, cluster):
    row, now = start(people), timezone.now()
    (one,) = cluster_checks.unfinished(now, most=10)
    (other,) = cluster_checks.unfinished(now, most=10)
    assert cluster_checks.take(one, now=now) and not cluster_checks.take(other, now=now)
    assert driver.go_on(now=now + LATER) == 0
    assert driver.go_on(now=now + cluster_checks.BUSY + LATER) == 1, "the process that took it died"
    assert list(cluster.probes) == [row.uid]


@pytest.mark.parametrize("name", ["checks.take", "checks.write"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_anywhere_is_made_up_for(people, cluster, monkeypatch, name, when):
    @contextmanager
    def dies(point: str):
        if point == name and when == "before":
            raise KeyboardInterrupt(point)
        yield
        if point == name:
            raise KeyboardInterrupt(point)

    row, ahead = start(people), timedelta()
    for _ in range(3):  # at each step of its life
        with monkeypatch.context() as patched:
            patched.setattr(faultpoints, "around", dies)
            with pytest.raises(KeyboardInterrupt):
                driver.go_on(now=timezone.now() + ahead)
        ahead += cluster_checks.BUSY + LATER
        driver.go_on(now=timezone.now() + ahead)
        ahead += cluster_checks.LATER + LATER
        row.refresh_from_db()
        if row.removed_at:
            break
    drive(row, ahead=ahead)
    assert row.findings[0]["state"] == "ok" and row.removed_at and cluster.probes == {}


@pytest.mark.django_db(transaction=True)
def test_a_web_process_that_dies_while_it_is_asked_leaves_all_or_nothing(people, cluster, monkeypatch):
    for when, left in (("before", 0), ("after", 1)):

        def dies(point: str, when: str = when) -> None:
            if point == f"checks.start.{when}":
                raise KeyboardInterrupt(point)

        with monkeypatch.context() as patched:
            patched.setattr(faultpoints, "point", dies)
            with pytest.raises(KeyboardInterrupt):
                start(people)
        assert ClusterCheck.objects.count() == AuditEntry.objects.filter(act="cluster.check").count() == left


def test_a_check_that_takes_long_is_looked_at_less_often(people, cluster):
    row, now = start(people), timezone.now()
    pauses = [
        cluster_checks.pause_of(row, now=row.asked_at + timedelta(seconds=age)).total_seconds() for age in (0, 60, 500)
    ]
    assert pauses == [1.5, 3.0, 10.0]
    cluster.probes_answer = False
    assert [driver.go_on(now=now + timedelta(seconds=age)) for age in (0, 1, 2, 100, 103, 106)] == [1, 0, 1, 1, 0, 1]


def test_the_newest_are_kept(people, cluster, monkeypatch):
    monkeypatch.setattr(cluster_checks, "MOST_KEPT", 3)
    for _ in range(5):
        row = drive(start(people))
    assert ClusterCheck.objects.count() == 4 and ClusterCheck.objects.filter(pk=row.pk).exists()


def test_a_version_of_a_queue_s_template_is_looked_at_as_before(people, cluster, on_pods):
    services.set_template(queue=on_pods, by=people.admin, template={"topology": {"prefer": "example.org/rack"}})
    queue = Queue.objects.get(pk=on_pods.pk)
    assert cluster_checks.shape_of(queue).topology == {"prefer": "example.org/rack"}
