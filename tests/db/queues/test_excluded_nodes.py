"""Nodes that platform administrators exclude: proposed after failures of several jobs, kept away from, and readmitted."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import AuditEntry
from common.errors import Conflict, InvalidInput, NotAllowed
from jobs import clusters
from jobs.analysis.suspects import suspects
from jobs.control.store import plan_of
from jobs.models import AttemptFailure, JobEvent
from jobs.submission import nodes
from queues import excluded
from queues.models import ExcludedNode

pytestmark = pytest.mark.django_db
LOCAL = "local"


def exclude(by, name: str = "gpu-3", **more) -> ExcludedNode:
    return nodes.exclude(**{"cluster": LOCAL, "reason": "Xid 79", **more}, name=name, by=by)


def fail_on(lab, node: str, *, ago: timedelta = timedelta()):
    """A job whose verdict blames the node, as a cluster and a visit bring it about."""
    job = lab.running()
    lab.cluster.silence(job.run, job.attempt, "worker", index=1, node=node)
    lab.visit(job)
    lab.cluster.lose(job.run, job.attempt, "worker", index=1)
    job = lab.visit(job, times=6)
    AttemptFailure.objects.filter(job=job).update(judged_at=timezone.now() - ago)
    return job


def suspected() -> dict[str, int]:
    return {one.name: one.jobs for one in suspects(timezone.now(), clusters=[LOCAL])}


def test_new_pods_stay_away_until_it_is_readmitted(lab, on_pods, people):
    job = lab.submit()
    row = exclude(people.admin)
    exclude(people.admin, name="gpu-1", reason="  fan  ")
    assert plan_of(job, 1).excluded_nodes == ("gpu-1", "gpu-3")
    excluded.readmit(row=row, by=people.admin)
    excluded.readmit(row=row, by=people.admin)
    assert plan_of(job, 1).excluded_nodes == ("gpu-1",)
    acts = AuditEntry.objects.filter(act__startswith="node.").order_by("id").values_list("act", "target_name")
    assert list(acts) == [
        ("node.exclude", "gpu-3"), ("node.exclude", "gpu-1"), ("node.readmit", "gpu-3"),
    ]  # fmt: skip


def test_an_attempt_says_which_nodes_it_stays_away_from(lab, on_pods, people):
    exclude(people.admin)
    job = lab.running()
    words = JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True)
    assert "It stays away from nodes that administrators excluded: gpu-3" in list(words)


def test_only_a_platform_administrator_excludes_and_readmits(people, on_pods):
    with pytest.raises(NotAllowed):
        exclude(people.owner)
    row = exclude(people.admin)
    with pytest.raises(NotAllowed):
        excluded.readmit(row=row, by=people.owner)
    assert excluded.names(LOCAL) == ("gpu-3",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cluster": "nowhere"}, "cluster: must be one of"),
        ({"name": "GPU 3"}, "is not the name of a node"),
        ({"name": "<b>"}, "is not the name of a node"),
        ({"name": "a" * 254}, "is not the name of a node"),
        ({"reason": " "}, "say what is wrong with the node"),
        ({"reason": "x" * 501}, "has 501 characters; at most 500 are stored"),
    ],
)
def test_what_is_no_node_or_has_no_reason_is_refused(people, on_pods, given, words):
    with pytest.raises(InvalidInput) as refused:
        exclude(people.admin, **given)
    assert words in str(refused.value)
    assert not ExcludedNode.objects.exists()


def test_a_name_that_the_cluster_does_not_know_is_refused(people, on_pods):
    clusters.get(LOCAL).nodes = {"gpu-3": {}}
    with pytest.raises(InvalidInput, match="is no node of cluster local"):
        exclude(people.admin, name="gpu-33")
    assert exclude(people.admin).name == "gpu-3"


def test_a_cluster_of_one_machine_has_no_nodes_to_exclude(people, settings):
    settings.CLUSTERS = {LOCAL: {"BACKEND": "jobs.clusters.local.LocalCluster"}}
    with pytest.raises(InvalidInput, match="processes of one machine and has no nodes"):
        exclude(people.admin)


def test_who_comes_second_is_told_who_was_first_and_why(people, on_pods):
    exclude(people.admin)
    with pytest.raises(Conflict, match=r"node gpu-3 is excluded already, by .*: Xid 79"):
        exclude(people.admin, reason="other")


def test_a_cluster_has_a_bounded_number_of_them(people, on_pods, monkeypatch):
    monkeypatch.setattr(excluded, "MOST", 2)
    for name in ("gpu-1", "gpu-2"):
        exclude(people.admin, name=name)
    with pytest.raises(Conflict, match="2 nodes of cluster local are excluded, which is the most"):
        exclude(people.admin)
    assert excluded.names(LOCAL) == ("gpu-1", "gpu-2")


def test_a_node_that_failed_two_jobs_in_a_day_is_suspected(lab):
    fail_on(lab, "gpu-1")
    fail_on(lab, "gpu-2", ago=timedelta(hours=25))
    fail_on(lab, "gpu-2")
    assert suspected() == {}
    first = fail_on(lab, "gpu-1", ago=timedelta(hours=23))
    (one,) = suspects(timezone.now(), clusters=[LOCAL])
    assert (one.cluster, one.name, one.jobs) == (LOCAL, "gpu-1", 2)
    assert first.pk in [failure.job_id for failure in one.failures]
    assert one.reason.startswith("2 jobs failed on it within a day; the last one: worker-1 vanished: its node gpu-1")
    assert suspects(timezone.now(), clusters=["elsewhere"]) == []


def test_two_attempts_of_one_job_are_one_job(lab):
    job = lab.running(max_retries=3)
    for attempt in (1, 2):
        lab.cluster.silence(job.run, attempt, "worker", index=1, node="gpu-1")
        lab.visit(job)
        lab.cluster.lose(job.run, attempt, "worker", index=1)
        job = lab.visit(job, times=6)
    assert AttemptFailure.objects.filter(node="gpu-1").count() == 2
    assert suspected() == {}


def test_an_excluded_node_is_suspected_again_only_for_what_happens_after_it_was_readmitted(lab, people, on_pods):
    fail_on(lab, "gpu-1", ago=timedelta(hours=2))
    fail_on(lab, "gpu-1", ago=timedelta(hours=1))
    row = exclude(people.admin, name="gpu-1")
    assert suspected() == {}
    excluded.readmit(row=row, by=people.admin)
    assert suspected() == {}
    for _ in range(2):
        fail_on(lab, "gpu-1")
    assert suspected() == {"gpu-1": 2}


def test_the_page_proposes_excludes_and_readmits(lab, people, on_pods, client):
    jobs = [fail_on(lab, "gpu-1") for _ in range(2)]
    client.force_login(people.admin)
    page = client.get("/nodes").text
    assert all(f'href="/jobs/{job.pk}"' in page for job in jobs) and "gpu-1" in page
    (one,) = suspects(timezone.now(), clusters=[LOCAL])
    sent = {"act": "exclude", "cluster": LOCAL, "name": "gpu-1", "reason": one.reason}
    assert client.post("/nodes", sent, follow=True).text.count("New pods stay away from gpu-1.") == 1
    row = ExcludedNode.objects.get()
    assert (row.excluded_by, row.reason) == (people.admin, one.reason)
    again = client.post("/nodes", {**sent, "reason": "<i>twice</i>"})
    assert again.status_code == 422 and "is excluded already" in again.text and "<i>twice" not in again.text
    client.post("/nodes", {"act": "readmit", "id": row.pk})
    assert excluded.names(LOCAL) == ()
    assert client.post("/nodes", {"act": "readmit", "id": "9" * 30}).status_code == 404


def test_the_page_of_a_job_names_the_node_that_it_failed_on(lab, people, client):
    job = fail_on(lab, "gpu-1")
    client.force_login(people.owner)
    assert "It blames node <b>gpu-1</b>" in client.get(f"/jobs/{job.pk}").text
