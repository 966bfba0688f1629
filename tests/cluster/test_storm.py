"""50 jobs of 40 replicas submitted at once on 1,000 nodes: all run, in the order in which they came."""

import pytest

from jobs.core.lifecycle import Phase
from jobs.models import Job, JobEvent, Replica
from rig.plane import ControlPlane
from rig.world import fill, settle

from .conftest import Place
from .crew import Crew, options

NAMESPACE = "storm"
NODES, JOBS, REPLICAS, GPUS = 1000, 50, 40, 4  # as many GPUs as there are
HALF = JOBS // 2


@pytest.fixture(scope="module")
def own(plane):
    """With lifted limits, and nodes that may be silent for long: KWOK speaks for a thousand. `plane` says whether one can be built here."""
    own = ControlPlane(has_lifted_limits=True, silent_node_seconds=600)
    try:
        own.start()
        fill(own, nodes=NODES)
        yield own
    finally:
        own.stop()


@pytest.fixture
def crew(own, agent, transactional_db, people, team, settings, tmp_path):
    with own.client() as admin:
        place = Place(own, NAMESPACE, settle(own, NAMESPACE), agent, admin)
        settings.CLUSTERS = {"rig": options(place)}
        crew = Crew(place, people.owner, team, tmp_path, settings.CLUSTERS)
        crew.start()
        yield crew
        crew.stop()


@pytest.mark.long
def test_fifty_jobs_of_forty_replicas_all_run_and_none_starves(crew):
    """Fair is: no job sees more than half of those that came after it run before it; all came at once, and all fit."""
    queue = crew.queue("gpus", JOBS * REPLICAS * GPUS, gpus_per_node=8, resource="gpu")
    for number in range(JOBS):
        crew.submit(f"job-{number:02}", queue, nodes=REPLICAS, nproc_per_node=GPUS, start_timeout_seconds=3600)
    crew.until(dict.fromkeys(crew.jobs, Phase.RUNNING))
    assert {job.attempt for job in crew.jobs.values()} == {1}, "none began twice"
    assert Replica.objects.filter(state="running").count() == JOBS * REPLICAS
    _need_every_gpu_once(crew)
    overtaken = _overtaken()
    assert max(overtaken.values()) <= HALF, overtaken

    crew.end_all()
    assert set(crew.phases().values()) == {Phase.CANCELLED}
    crew.need_one_way_through()


def _overtaken() -> dict[str, int]:
    """How many of those that came after it ran before it, of each job that anybody overtook."""
    ran = list(
        JobEvent.objects.filter(kind="step", phase=Phase.RUNNING).order_by("id").values_list("job_id", flat=True)
    )
    names = dict(Job.objects.values_list("pk", "name"))
    return {names[job]: sum(other > job for other in ran[:place]) for place, job in enumerate(ran)}


def _need_every_gpu_once(crew: Crew) -> None:
    pods = crew.place.pods()
    assert sorted(pods) == sorted(pod for name in crew.jobs for pod in crew.pods(name))
    on: dict[str, int] = {}
    for one in pods.values():
        assert one["status"]["phase"] == "Running"
        on[one["spec"]["nodeName"]] = on.get(one["spec"]["nodeName"], 0) + GPUS
    assert max(on.values()) <= 8 and sum(on.values()) == JOBS * REPLICAS * GPUS
