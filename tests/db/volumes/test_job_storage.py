"""Claims of a job's own, by its queue's template: made with its first attempt, sized by its GPUs, deleted when they should be."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import InvalidInput
from jobs import services as jobs
from jobs.clusters import adapters
from jobs.control import volume_visits
from jobs.control.store import plan_of
from jobs.submission import pods
from queues import services
from volumes import services as volumes
from volumes.models import JobStorage

pytestmark = pytest.mark.django_db
STORAGE = {
    "storage": {
        "workspace": {"size_per_gpu": "10Gi"}, "checkpoints": {"size_per_gpu": "50Gi", "storage_class": "shared"},
    }
}  # fmt: skip


@pytest.fixture
def stored(lab, on_pods, people):
    """The lab, whose queue gives each job a workspace and checkpoints."""
    template = pods.checked(on_pods, STORAGE, by=people.admin)
    lab.queue = services.set_template(queue=on_pods, by=people.admin, template=template)
    lab.cluster = adapters.get(on_pods.cluster)
    lab.cluster.clock, lab.cluster.run_seconds = lab.clock.seconds, 1e9
    return lab


def names(lab) -> list[str]:
    return sorted(lab.cluster.claims)


def visit() -> None:
    for seconds in (60, 120):  # asked for, then seen gone
        volume_visits.visit_all(now=timezone.now() + timedelta(seconds=seconds))


def test_sizes_grow_with_the_job_s_gpus(stored):
    plan = plan_of(stored.submit(nodes=2, nproc_per_node=4), 1)
    sizes = {kind: (one.size, one.storage_class, one.access_mode) for kind, one in plan.job_claims.items()}
    assert sizes == {
        "workspace": ("80Gi", "", "ReadWriteMany"),
        "checkpoints": ("400Gi", "shared", "ReadWriteMany"),
    }


def test_a_workspace_goes_with_the_job_and_checkpoints_with_its_row(stored):
    job = stored.running(max_retries=1)
    own = [f"muster-job-{job.run}-{kind}" for kind in ("checkpoints", "workspace")]
    assert names(stored) == own
    stored.finish(job, 3, 3)
    stored.visit(job, times=3)
    visit()
    assert job.attempt == 2 and names(stored) == own  # the next attempt goes on with them
    stored.finish(job, 0, 0)
    visit()
    assert names(stored) == own[:1] and JobStorage.objects.get().kind == "checkpoints"
    job.delete()
    visit()
    assert names(stored) == [] and not JobStorage.objects.exists()


def test_a_suspended_job_keeps_both(stored):
    job = stored.running()
    jobs.suspend(job=job, by=stored.user)
    stored.visit(job, times=4)
    assert job.phase == "suspended"
    visit()
    assert len(names(stored)) == 2


def test_what_was_noted_and_never_made_is_forgotten(stored):
    job = stored.running()
    stored.cluster.claims.clear()
    stored.finish(job, 0, 0)
    job.delete()
    visit()
    assert not JobStorage.objects.exists()


def test_a_job_that_was_submitted_before_has_none(lab, on_pods, people):
    job = lab.submit()
    services.set_template(queue=on_pods, by=people.admin, template=STORAGE)
    assert plan_of(job, 1).job_claims == {}


@pytest.mark.parametrize(
    ("storage", "field"),
    [
        ({"datasets": {"size_per_gpu": "1Gi"}}, "storage.datasets"),
        ({"workspace": {}}, "storage.workspace.size_per_gpu"),
        ({"workspace": {"size_per_gpu": "10GB"}}, "storage.workspace.size_per_gpu"),
        ({"workspace": {"size_per_gpu": "1Gi", "sizePerGPU": 1}}, "storage.workspace.sizePerGPU"),
        ({"workspace": {"size_per_gpu": "1Gi", "storage_class": "A b"}}, "storage.workspace.storage_class"),
        ({"workspace": "10Gi"}, "storage.workspace"),
        ("10Gi", "storage"),
    ],
)
def test_what_is_no_storage(on_pods, people, storage, field):
    with pytest.raises(InvalidInput) as caught:
        pods.checked(on_pods, {"storage": storage}, by=people.admin)
    assert [one.field for one in caught.value.problems] == [field]


def notes(lab, **more) -> list[str]:
    sent = {"command": ["torchrun", "train.py"], "nodes": 1, "nproc_per_node": 2, **more}
    return [one for one in jobs.preview(user=lab.user, queue=lab.queue, sent=sent).notes if one.startswith(("workspace: ", "checkpoints: ", "volume "))]  # fmt: skip


def test_a_plan_says_what_may_keep_a_claim_from_being_made(stored):
    assert notes(stored) == []
    assert notes(stored, nodes=2) == [
        "workspace: whether several nodes can mount a volume of the default storage class (memory) is not known here",
        "checkpoints: whether several nodes can mount a volume of shared (memory) is not known here",
    ]
    stored.cluster.no_claims = 'exceeded quota: storage, requested: requests.storage=100Gi'  # fmt: skip
    assert notes(stored) == [
        f"{kind}: the cluster would not make its claim today: {stored.cluster.no_claims}"
        for kind in ("workspace", "checkpoints")
    ]
    stored.cluster.classes = {"": "memory", "disks": "ebs.csi.aws.com"}
    assert notes(stored)[1] == "checkpoints: storage class shared does not exist; the cluster has disks"
    assert stored.submit().phase == "queued", "it may be there when the job runs"


def test_the_claim_of_a_volume_that_is_there_is_not_asked_about(lab, on_pods, people):
    row = volumes.create(team=on_pods.team, by=people.admin, name="data", cluster=on_pods.cluster, size="1Gi")
    lab.queue = on_pods
    adapters.get(on_pods.cluster).no_claims = "exceeded quota"
    assert notes(lab, volumes=["data"]) == ["volume data: the cluster would not make its claim today: exceeded quota"]
    volumes.record(row, state="bound", capacity="1Gi", message="", now=timezone.now())
    assert notes(lab, volumes=["data"]) == []


def test_a_class_whose_volumes_one_node_mounts_is_refused(on_pods, people):
    adapters.get(on_pods.cluster).classes = {"disks": "ebs.csi.aws.com", "files": "efs.csi.aws.com"}
    wanted = {"storage": {"workspace": {"size_per_gpu": "1Gi", "storage_class": "disks"}}}
    with pytest.raises(InvalidInput, match="one node mounts; choose one that several nodes can mount, such as files"):
        pods.checked(on_pods, wanted, by=people.admin)
    wanted["storage"]["workspace"]["storage_class"] = "fast"
    with pytest.raises(InvalidInput, match="does not exist; the cluster has disks, files"):
        pods.checked(on_pods, wanted, by=people.admin)
