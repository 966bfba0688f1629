"""/: what is used, what needs attention, the queues and one's own jobs."""

from dataclasses import replace
from datetime import timedelta

from django.utils import timezone

from accounts.models import Team
from jobs import clusters
from jobs.analysis import cluster_nodes, overview
from jobs.control import node_rows
from jobs.core import node_summary
from jobs.core.lifecycle import Phase
from jobs.core.node_seen import NodeSeen
from jobs.models import AttemptFailure, Job, Rank, Replica
from jobs.scheduling.scheduler import schedule
from queues.models import Queue
from tests.support import seed
from tests.support.builders import Lab


def attention():
    return overview.attention(Job.objects.all(), now=timezone.now())


def test_an_installation_where_all_is_well_says_so(owner, lab):
    lab.running()
    page = owner.get("/").text
    assert "Nothing: no job failed in 24 hours" in page
    assert "4 of 8" in page and "CPU slots" in page and "nlp 4" in page


def test_what_needs_attention_is_named(owner, lab):
    idle, silent = (
        seed.running(lab, name="idles", nodes=1, per_node=2),
        seed.running(lab, name="is-mute", nodes=1, per_node=2),
    )
    now = timezone.now()
    Replica.objects.filter(job=idle).update(last_batch_at=now)
    Rank.objects.filter(job=idle).update(gpu_idle_since=now - timedelta(minutes=20))
    Replica.objects.filter(job=silent).update(last_batch_at=now - timedelta(minutes=5))
    late = lab.submit(name="waits-long", nodes=2, nproc_per_node=4)
    Job.objects.filter(pk=late.pk).update(phase_since=now - timedelta(hours=2))
    failed = lab.submit(name="fails", nodes=1)
    Job.objects.filter(pk=failed.pk).update(phase=Phase.FAILED, finished_at=now, attempt=1)
    AttemptFailure.objects.create(
        job=failed, attempt=1, kind="device_memory", certainty="certain", headline="x", explanation="x", judged_at=now
    )
    found = attention()
    assert found.failed == [("device_memory", 1)]
    assert [[one.name for one in some.jobs] for some in (found.idle, found.silent, found.waiting)] == [
        ["idles"], ["is-mute"], ["waits-long"],
    ]  # fmt: skip
    page = owner.get("/").text
    assert "/jobs?phase=failed&amp;kind=device_memory" in page and "1 device memory" in page
    for name in ("idles", "is-mute", "waits-long"):
        assert name in page


def test_what_is_no_trouble_is_not_named(lab):
    job = seed.running(lab, nodes=1, per_node=2)
    now = timezone.now()
    Replica.objects.filter(job=job).update(last_batch_at=now)
    Rank.objects.filter(job=job).update(gpu_idle_since=now - timedelta(minutes=5))
    waits = lab.submit(nodes=2, nproc_per_node=4)
    Job.objects.filter(pk=waits.pk).update(suspended=True, phase_since=now - timedelta(hours=2))
    old = lab.submit(nodes=1)
    Job.objects.filter(pk=old.pk).update(phase=Phase.FAILED, finished_at=now - timedelta(hours=25), attempt=1)
    AttemptFailure.objects.create(
        job=old, attempt=1, kind="device_memory", certainty="certain", headline="x", explanation="x", judged_at=now
    )
    assert not attention().is_needed


def test_a_reader_sees_his_own_teams_alone(as_, people, lab):
    job = lab.running(name="of-nlp")
    other = Team.objects.get(name="vision")
    Queue.objects.create(name="theirs", team=other, cluster="local", nominal=16)
    page = as_(people.stranger).get("/").text
    assert "of-nlp" not in page and f"/queues/{job.queue.name}" not in page
    admins = as_(people.admin).get("/").text
    assert "of 24" in admins, "the sum of all queues of the cluster"


def test_the_median_wait_is_of_jobs_that_were_admitted_in_a_day(lab):
    now = timezone.now()
    for minutes, hours in ((10, 1), (20, 1), (90, 1), (1000, 30)):
        job = lab.submit(nodes=1)
        at = now - timedelta(hours=hours)
        Job.objects.filter(pk=job.pk).update(created_at=at - timedelta(minutes=minutes), admitted_at=at)
    assert overview.median_waits([lab.queue.pk], now=now) == {lab.queue.pk: (20 * 60.0, 3)}


def test_its_queries_do_not_depend_on_the_number_of_queues_and_jobs(owner, lab, team, django_assert_num_queries):
    with django_assert_num_queries(16):
        owner.get("/")
    for number in range(5):
        Queue.objects.create(name=f"queue-{number}", team=team, cluster="local", nominal=4)
        lab.submit(nodes=1)
    schedule()
    with django_assert_num_queries(16):
        owner.get("/")


def test_nodes_and_idle_gpus_are_said_beside_the_quota(owner, on_pods, people):
    Queue.objects.filter(pk=on_pods.pk).update(resource="gpu", gpus_per_node=8, nominal=64)
    on_pods.refresh_from_db()
    known = [NodeSeen(f"gpu-{number}", devices={"nvidia.com/gpu": 8}, others=0) for number in range(3)]
    clusters.get(on_pods.cluster).listed = [
        *known,
        NodeSeen("away", is_cordoned=True, devices={"nvidia.com/gpu": 8}, others=0),
    ]
    node_rows.write(on_pods.cluster)
    job = Lab(on_pods, people.owner).running(nodes=1, nproc_per_node=6)
    now = timezone.now()
    Replica.objects.filter(job=job).update(node="gpu-0", last_batch_at=now)
    Rank.objects.filter(job=job).update(state="running", gpu_xid=None)
    Rank.objects.filter(job=job, rank__lt=2).update(gpu_idle_since=now - timedelta(minutes=9))
    page = owner.get("/").text
    assert "6 of 64" in page and "nlp 6 (2 idle)" in page
    assert (
        "4 nodes with 32 GPUs. 18 free, no node has more than 8; 2 of those held are idle; 1 node takes no pods" in page
    )
    assert cluster_nodes.sums(on_pods.cluster, now=now) == replace(
        node_summary.summary(cluster_nodes.facts(on_pods.cluster, now=now)), groups=(), exceptions=0
    )


def test_quota_that_nobody_used_for_a_week_is_named(owner, lab):
    assert "Quota unused" not in owner.get("/").text, "it was made today"
    Queue.objects.filter(pk=lab.queue.pk).update(created_at=timezone.now() - timedelta(days=8))
    page = owner.get("/").text
    assert "Quota unused for a week" in page and "8 CPU slots" in page
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(admitted_at=timezone.now() - timedelta(days=9))
    assert "Quota unused" not in owner.get("/").text, "a job holds some of it"
    Job.objects.filter(pk=job.pk).update(phase=Phase.SUCCEEDED, finished_at=timezone.now())
    assert "Quota unused" not in owner.get("/").text, "it ended just now"
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=8))
    assert "Quota unused" in owner.get("/").text
    Job.objects.filter(pk=job.pk).update(admitted_at=timezone.now() - timedelta(days=6))
    assert "Quota unused" not in owner.get("/").text
