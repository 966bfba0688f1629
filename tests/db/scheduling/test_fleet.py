"""Jobs wait for nodes that are really there: what is read of them, who waits and why, and when nodes prove nothing."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import InvalidSpec
from jobs import clusters
from jobs import services as jobs
from jobs.control import node_rows
from jobs.core.lifecycle import Phase, StopReason
from jobs.core.node_seen import NodeSeen
from jobs.models import ClusterLook, ClusterNode, Job, Replica
from jobs.scheduling import fleet, waiting, what_if
from jobs.scheduling.scheduler import schedule
from jobs.submission import pods
from queues import cohorts, excluded, services
from queues.models import Queue
from queues.trees import sharing
from tests.support.builders import Lab

pytestmark = pytest.mark.django_db


def node(name: str, gpus: int = 8, **more) -> NodeSeen:
    return NodeSeen(name, devices={"nvidia.com/gpu": gpus}, **{"others": 0, **more})


def look(*nodes: NodeSeen) -> None:
    """Let the cluster list these nodes, and write them as beat does."""
    clusters.get("local").listed = list(nodes)
    node_rows.write("local")


@pytest.fixture
def lab(on_pods, people) -> Lab:
    """A queue of 64 GPUs on a cluster of two nodes with eight each."""
    Queue.objects.filter(pk=on_pods.pk).update(resource="gpu", gpus_per_node=8, nominal=64)
    on_pods.refresh_from_db()
    look(node("gpu-1"), node("gpu-2"))
    return Lab(on_pods, people.owner)


def on_nodes(job: Job, *names: str) -> Job:
    for index, name in enumerate(names):
        Replica.objects.filter(job=job, index=index).update(node=name)
    return job


def starting(lab: Lab, job: Job) -> None:
    """Its replicas are made, and none runs yet."""
    lab.visit(job)
    Job.objects.filter(pk=job.pk).update(phase=Phase.STARTING, running_at=None)


def phases(*jobs: Job) -> list[str]:
    return [Job.objects.get(pk=one.pk).phase for one in jobs]


def test_a_job_waits_for_whole_nodes_and_starts_once_they_are_free(lab):
    small = on_nodes(lab.running(nodes=2, nproc_per_node=4, name="small"), "gpu-1", "gpu-2")
    large = lab.submit(nodes=1, nproc_per_node=8)
    schedule()
    large.refresh_from_db()
    words = (
        "needs a node with 8 GPUs; 8 GPUs are free, at most 4 on one node, which is no such room; 2 x 4 would fit now"
    )
    assert (large.phase, large.wait_code, large.wait_reason) == (Phase.QUEUED, "fragmented", words)
    found = waiting.of_job(large)
    assert (found.position, found.sentence) == (1, words)
    lab.finish(small, 0, 0)
    schedule()
    assert phases(large) == [Phase.ADMITTED]


def test_what_was_admitted_and_is_on_no_node_yet_has_its_room(lab):
    first, second, third = (lab.submit(nodes=1, nproc_per_node=8) for _ in range(3))
    schedule()
    assert phases(first, second, third) == [Phase.ADMITTED, Phase.ADMITTED, Phase.QUEUED]
    schedule()
    assert Job.objects.get(pk=third.pk).wait_code == "no_nodes", "in a later pass too"
    assert phases(third) == [Phase.QUEUED]
    state = fleet.of_queues(sharing(lab.queue))
    assert state.unplaced == ((first.pk, ((8, 1),)), (second.pk, ((8, 1),)))


def test_a_job_that_is_on_some_of_its_nodes_has_room_for_the_rest(lab):
    job = lab.submit(nodes=3, nproc_per_node=4)
    schedule()
    starting(lab, job)
    on_nodes(job, "gpu-1")
    state = fleet.of_queues(sharing(lab.queue))
    assert state.placed == {job.pk: {"gpu-1": 4}} and state.unplaced == ((job.pk, ((4, 2),)),)


@pytest.mark.parametrize(
    "second",
    [
        node("gpu-2", is_cordoned=True),
        node("gpu-2", gpus=4),
    ],
    ids=["cordoned", "smaller"],
)  # fmt: skip
def test_nodes_that_take_no_such_pods_do_not_count(lab, second):
    look(node("gpu-1"), second)
    large, one = lab.submit(nodes=2, nproc_per_node=8), lab.submit(nodes=1, nproc_per_node=8)
    schedule()
    large.refresh_from_db()
    assert (large.phase, large.wait_code) == (Phase.QUEUED, "no_node_shape")
    assert large.wait_reason.startswith("needs 2 nodes with 8 GPUs")
    assert phases(one) == [Phase.ADMITTED], "what no nodes could take holds up nobody, also in a strict queue"
    assert waiting.of_job(large).position is None and waiting.of_job(large).starts is None
    look(node("gpu-1"), node("gpu-2"), node("gpu-3"))
    schedule()
    assert phases(large) == [Phase.ADMITTED]


def test_an_excluded_node_does_not_count_until_it_is_readmitted(lab, people):
    row = excluded.exclude(cluster="local", name="gpu-2", reason="fan", by=people.admin)
    job = lab.submit(nodes=2, nproc_per_node=8)
    schedule()
    assert phases(job) == [Phase.QUEUED]
    excluded.readmit(row=row, by=people.admin)
    schedule()
    assert phases(job) == [Phase.ADMITTED]


def nodes_never_seen() -> None:
    ClusterLook.objects.all().delete()
    ClusterNode.objects.all().delete()


def not_seen_lately() -> None:
    ClusterLook.objects.update(seen_at=timezone.now() - timedelta(minutes=4))


def not_answered() -> None:
    clusters.get("local").listed = None
    node_rows.write("local")


def autoscaled() -> None:
    clusters.get("local").adds_nodes = True


def without_devices() -> None:
    look(node("gpu-1", gpus=0))


@pytest.mark.parametrize("state", [nodes_never_seen, not_seen_lately, not_answered, autoscaled, without_devices])
def test_nodes_that_prove_nothing_keep_nobody_waiting(lab, state):
    state()
    job = lab.submit(nodes=4, nproc_per_node=8)
    schedule()
    assert phases(job) == [Phase.ADMITTED]


def test_a_queue_of_cpu_slots_is_not_asked_about_nodes(lab):
    Queue.objects.filter(pk=lab.queue.pk).update(resource="cpu")
    lab.queue.refresh_from_db()
    job = lab.submit(nodes=4, nproc_per_node=8)
    schedule()
    assert phases(job) == [Phase.ADMITTED]


def refused(job: Job, seconds: float = 10) -> None:
    said = "no place for it: 0 of 2 nodes fit: 2 had untolerated taint {dedicated: research}"
    seen = timezone.now() - timedelta(seconds=seconds)
    Replica.objects.filter(job=job).update(state="pending", node="", reason=said, seen_at=seen)


def test_a_pod_without_a_place_proves_something_for_its_own_shape_until_it_has_one(lab):
    first = lab.submit(nodes=1, nproc_per_node=4)
    schedule()
    starting(lab, first)
    refused(first)
    same, smaller = lab.submit(nodes=1, nproc_per_node=4), lab.submit(nodes=1, nproc_per_node=2)
    other = lab.submit(nodes=1, nproc_per_node=4, tolerations=[{"key": "dedicated", "operator": "Exists"}])
    Queue.objects.filter(pk=lab.queue.pk).update(policy="best_effort")
    schedule()
    assert phases(same, smaller, other) == [Phase.QUEUED, Phase.ADMITTED, Phase.ADMITTED]
    same.refresh_from_db()
    assert same.wait_code == "no_place" and f"the pods of job {first.pk}" in same.wait_reason
    refused(first, seconds=600)
    schedule()
    assert phases(same) == [Phase.QUEUED], "Kubernetes says it still"
    Replica.objects.filter(job=first).update(reason="", node="gpu-1")
    schedule()
    assert phases(same) == [Phase.ADMITTED]


def test_nobody_is_preempted_for_a_job_that_nodes_have_no_room_for(lab):
    """Without nodes it lacks quota alone, and the jobs of a lower priority would leave for nothing."""
    Queue.objects.filter(pk=lab.queue.pk).update(nominal=16, preempts=True)
    lab.queue.refresh_from_db()
    low = [on_nodes(lab.running(nodes=1, nproc_per_node=4, priority=-1), "gpu-1") for _ in range(2)]
    look(node("gpu-1"), node("gpu-2", is_cordoned=True))
    high = lab.submit(nodes=2, nproc_per_node=8, priority=5)
    schedule()
    high.refresh_from_db()
    assert high.wait_code == "no_node_shape"
    assert not Job.objects.filter(pk__in=[one.pk for one in low], preempt_requested_at__isnull=False).exists()


def test_a_job_that_no_nodes_could_take_holds_up_nobody_while_some_quota_is_free(lab):
    Queue.objects.filter(pk=lab.queue.pk).update(nominal=16)
    lab.queue.refresh_from_db()
    on_nodes(lab.running(nodes=1, nproc_per_node=4), "gpu-1")
    look(node("gpu-1"), node("gpu-2", is_cordoned=True))
    large, small = lab.submit(nodes=2, nproc_per_node=8), lab.submit(nodes=1, nproc_per_node=4)
    schedule()
    assert phases(large, small) == [Phase.QUEUED, Phase.ADMITTED], "the large one lacks quota, too"


def test_a_job_that_is_tried_again_keeps_its_nodes(lab):
    job = on_nodes(lab.running(nodes=2, nproc_per_node=8, max_retries=1), "gpu-1", "gpu-2")
    Replica.objects.filter(job=job).update(state="failed", ended_at=timezone.now())
    Job.objects.filter(pk=job.pk).update(phase=Phase.STOPPING, stop_reason=StopReason.RETRY)
    waits = lab.submit(nodes=1, nproc_per_node=8)
    schedule()
    assert phases(waits) == [Phase.QUEUED]


def test_a_replica_that_is_replaced_has_its_room(lab):
    job = on_nodes(lab.running(nodes=2, nproc_per_node=8), "gpu-1", "gpu-2")
    Replica.objects.filter(job=job, index=1).update(node="", state="pending")
    waits = lab.submit(nodes=1, nproc_per_node=8)
    schedule()
    assert phases(waits) == [Phase.QUEUED]


def test_a_queue_of_devices_that_nodes_are_not_known_to_offer_goes_by_quota(lab):
    Queue.objects.filter(pk=lab.queue.pk).update(template={"node": {"resource": "habana.ai/gaudi"}})
    lab.queue.refresh_from_db()
    assert fleet.of_queues(sharing(lab.queue)) is None
    Queue.objects.filter(pk=lab.queue.pk).update(template={"node": {"resource": "nvidia.com/gpu"}})
    lab.queue.refresh_from_db()
    assert fleet.of_queues(sharing(lab.queue)) is not None


def test_a_node_that_does_not_answer_for_a_moment_puts_no_job_out_of_line(lab):
    look(node("gpu-1"), node("gpu-2", silence="Kubelet stopped posting node status."))
    large = lab.submit(nodes=2, nproc_per_node=8)
    schedule()
    assert Job.objects.get(pk=large.pk).wait_code == "no_nodes"
    ClusterNode.objects.filter(name="gpu-2").update(silent_since=timezone.now() - timedelta(minutes=11))
    schedule()
    assert Job.objects.get(pk=large.pk).wait_code == "no_node_shape"


@pytest.fixture
def pools(lab) -> Queue:
    """The queue is of the flavor of one pool; the cluster has a node of it, and one of another pool."""
    cohorts.make_flavor(by=None, name="h100", cluster="local", gpus_per_node=8, node_selector={"pool": "h100"})
    cohorts.set_quota(by=None, team=lab.queue.team, flavor="h100", nominal=64)
    services.change(queue=lab.queue, by=None, flavor="h100")
    look(node("gpu-1", labels={"pool": "h100"}), node("gpu-2", labels={"pool": "a100"}))
    lab.queue.refresh_from_db()
    return lab.queue


def test_a_job_runs_on_the_nodes_of_its_flavor_and_asks_for_no_others(lab, pools):
    job = lab.submit(nodes=1, nproc_per_node=8, node_selector={"zone": "z1"})
    (role,) = pods.roles_of(job)
    assert role.shape.node_selector == {"pool": "h100", "zone": "z1"}
    for sent in ({"node_selector": {"pool": "a100"}}, {"roles": {"worker": {"node_selector": {"pool": "a100"}}}}):
        with pytest.raises(
            InvalidSpec, match=r"node_selector\.pool: is h100 for every job of queue default, by its flavor"
        ):
            lab.submit(nodes=1, nproc_per_node=8, **sent)
    assert lab.submit(nodes=1, nproc_per_node=8, node_selector={"pool": "h100"}), "the same value is no other"


def test_only_nodes_of_its_flavor_have_room_for_a_job(lab, pools):
    assert fleet.of_queues(sharing(pools)).gpus == {"gpu-1": 8}
    large, first, second = (
        lab.submit(nodes=2, nproc_per_node=8), lab.submit(nodes=1, nproc_per_node=8), lab.submit(nodes=1, nproc_per_node=8),
    )  # fmt: skip
    schedule()
    codes = [Job.objects.get(pk=one.pk).wait_code for one in (large, first, second)]
    assert codes == ["no_node_shape", "", "no_nodes"]


def test_a_label_that_no_node_was_seen_with_proves_nothing(lab, pools):
    ClusterNode.objects.update(levels={})
    assert fleet.of_queues(sharing(pools)).gpus == {"gpu-1": 8, "gpu-2": 8}


def test_a_pool_without_nodes_has_room_for_nobody(lab, pools):
    look(node("gpu-2", labels={"pool": "a100"}))
    job = lab.submit(nodes=1, nproc_per_node=1)
    schedule()
    assert Job.objects.get(pk=job.pk).wait_code == "no_node_shape"


def test_jobs_that_begin_elsewhere_take_no_room_of_a_flavor(lab, pools, people):
    other = Queue.objects.create(
        name="other", team=pools.team, cluster="local", resource="gpu", nominal=64, gpus_per_node=8
    )
    Lab(other, people.owner).submit(nodes=1, nproc_per_node=8)
    schedule()
    assert fleet.of_queues(sharing(pools)).unplaced == ()
    (begun,) = fleet.of_queues(sharing(other)).unplaced
    assert begun[1] == ((8, 1),)


def test_a_plan_says_what_would_fit_now(lab):
    on_nodes(lab.running(nodes=2, nproc_per_node=6), "gpu-1", "gpu-2")
    sent = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 4}
    plan = jobs.preview(user=lab.user, queue=lab.queue, sent=sent)
    assert plan.waiting.sentence.endswith("at most 2 on one node, which is no such room; 2 x 2 would fit now")


def test_a_change_of_quota_is_foretold_with_the_nodes(lab):
    small = on_nodes(lab.running(nodes=2, nproc_per_node=4, name="small"), "gpu-1", "gpu-2")
    lab.submit(nodes=1, nproc_per_node=8, name="first")
    second = lab.submit(nodes=1, nproc_per_node=4, name="second")
    assert what_if.of_priority(second, 5).sentences == [
        "It is number 1 in queue default then, and 2 now.",
        f"There is room at once for second (job {second.pk}, 4).",
    ]
    assert small.phase == Phase.RUNNING
