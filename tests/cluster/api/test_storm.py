"""50 jobs of 40 replicas submitted at once on 1,000 nodes: all run, in the order of submission."""

import pytest

from jobs.core.lifecycle import Phase
from jobs.models import Job, JobEvent, Replica
from rig.plane import ControlPlane
from rig.world import fill, settle
from tests.cluster.api.testbed import ClusterTestbed, options
from tests.cluster.conftest import NamespaceFixture

NAMESPACE = "storm"
NODES, JOBS, REPLICAS, GPUS = 1000, 50, 40, 4  # the jobs use every GPU of the nodes
HALF = JOBS // 2


@pytest.fixture(scope="module")
def own(plane):
    """A control plane with lifted limits and a long timeout for silent nodes, since KWOK simulates a thousand of them.

    `plane` skips the test if none can be built here.
    """
    own = ControlPlane(has_lifted_limits=True, silent_node_seconds=600)
    try:
        own.start()
        fill(own, nodes=NODES)
        yield own
    finally:
        own.stop()


@pytest.fixture
def testbed(own, agent, transactional_db, people, team, settings, tmp_path):
    with own.client() as admin:
        place = NamespaceFixture(own, NAMESPACE, settle(own, NAMESPACE), agent, admin)
        settings.CLUSTERS = {"rig": options(place)}
        testbed = ClusterTestbed(place, people.owner, team, tmp_path, settings.CLUSTERS)
        testbed.start()
        yield testbed
        testbed.stop()


@pytest.mark.soak(guards=("jobs/clusters/kubernetes", "jobs/scheduling/scheduler.py"))
def test_fifty_jobs_of_forty_replicas_all_run_and_none_starves(testbed):
    """Fairness: for no job do more than half of the jobs run earlier that were submitted later; all fit at once."""
    queue = testbed.queue("gpus", JOBS * REPLICAS * GPUS, gpus_per_node=8, resource="gpu")
    for number in range(JOBS):
        testbed.submit(f"job-{number:02}", queue, nodes=REPLICAS, nproc_per_node=GPUS, start_timeout_seconds=3600)
    testbed.until(dict.fromkeys(testbed.jobs, Phase.RUNNING))
    assert {job.attempt for job in testbed.jobs.values()} == {1}, "none began twice"
    assert Replica.objects.filter(state="running").count() == JOBS * REPLICAS
    _need_every_gpu_once(testbed)
    overtaken = _overtaken()
    assert max(overtaken.values()) <= HALF, overtaken

    testbed.end_all()
    assert set(testbed.phases().values()) == {Phase.CANCELLED}
    testbed.need_one_way_through()


def _overtaken() -> dict[str, int]:
    """For each job, how many jobs that were submitted later ran earlier."""
    ran = list(
        JobEvent.objects.filter(kind="step", phase=Phase.RUNNING).order_by("id").values_list("job_id", flat=True)
    )
    names = dict(Job.objects.values_list("pk", "name"))
    return {names[job]: sum(other > job for other in ran[:place]) for place, job in enumerate(ran)}


def _need_every_gpu_once(testbed: ClusterTestbed) -> None:
    pods = testbed.place.pods()
    assert sorted(pods) == sorted(pod for name in testbed.jobs for pod in testbed.pods(name))
    on: dict[str, int] = {}
    for one in pods.values():
        assert one["status"]["phase"] == "Running"
        on[one["spec"]["nodeName"]] = on.get(one["spec"]["nodeName"], 0) + GPUS
    assert max(on.values()) <= 8 and sum(on.values()) == JOBS * REPLICAS * GPUS
