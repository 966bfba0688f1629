"""The queues in examples/queues are accepted as they are, and give their jobs what they say."""

from pathlib import Path

import pytest
from muster.commands.queue_file import read_template

from jobs.clusters import adapters
from jobs.control.store import plan_of
from jobs.submission import pods
from jobs.submission.resolving import queue_defaults
from queues import services
from queues.models import Queue

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "queues"
FILES = sorted(FOLDER.glob("*.yaml"))


def made(queue: Queue, file: Path, by, gpus: int) -> Queue:
    found = read_template(file.read_text(), source=file.name)
    Queue.objects.filter(pk=queue.pk).update(gpus_per_node=gpus, resource="gpu")
    queue.refresh_from_db()
    defaults = queue_defaults(queue, found["defaults"])
    return services.set_template(
        queue=queue, by=by, defaults=defaults, template=pods.checked(queue, found["template"], by=by)
    )


@pytest.mark.parametrize(
    ("name", "gpus", "cpu", "memory", "checkpoints"),
    [
        ("gpu-training", 8, "48", "256Gi", "200Gi"),
        ("h100-training", 8, "64", "512Gi", "200Gi"),
        ("dev", 4, "32", "128Gi", ""),
        ("prod", 8, "48", "256Gi", "200Gi"),
    ],
)
def test_a_job_of_four_gpus_gets_its_part_of_a_node(lab, on_pods, people, name, gpus, cpu, memory, checkpoints):
    adapters.get(on_pods.cluster).classes = {"": "nfs.csi.k8s.io", "fast-shared": "csi.weka.io"}
    lab.queue = made(on_pods, FOLDER / f"{name}.yaml", people.admin, gpus)
    plan = plan_of(lab.submit(nodes=1, nproc_per_node=4), 1)
    (role,) = plan.roles
    assert (role.shape.limits["cpu"], role.shape.limits["memory"]) == (cpu, memory)
    assert role.shape.image.startswith("pytorch/pytorch:")
    assert plan.job_claims["checkpoints"].size == checkpoints if checkpoints else not plan.job_claims
    assert {file.stem for file in FILES} == {"gpu-training", "h100-training", "dev", "prod"}
