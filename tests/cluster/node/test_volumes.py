"""A team's volume on real pods: both replicas write and read it, a read-only mount refuses, and it is deleted after its use."""

import pytest
from muster.errors import Conflict

from rig.world import NAMESPACE
from tests.cluster.node.conftest import GUARDS, Pods
from tests.support.patience import until

SHARES = """
import os, pathlib, time
me, other = os.environ["MUSTER_INDEX"], str(1 - int(os.environ["MUSTER_INDEX"]))
shared = pathlib.Path("/data")
assert os.environ["MUSTER_VOLUME_SHARED"] == "/data"
(shared / me).write_text("from " + me)
while not (shared / other).exists():
    time.sleep(0.1)
print((shared / other).read_text(), flush=True)
try:
    (pathlib.Path("/sets") / "new").write_text("x")
except OSError as error:
    print(error.strerror, flush=True)
while not (shared / "end").exists():
    time.sleep(0.1)
"""


def storage(pods: Pods, name: str) -> None:
    """Make storage by hand for the claim that Muster will make for a volume."""
    folder = pods.node.jobs / f"volume-{name}"
    folder.mkdir()
    folder.chmod(0o777)
    body = {
        "metadata": {"name": f"storage-{name}"},
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder)}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": f"muster-volume-pods.{name}"},
        },
    }  # fmt: skip
    answer = pods.admin.post("/api/v1/persistentvolumes", json=body)
    assert answer.status_code == 201, answer.text


@pytest.mark.ci(guards=(*GUARDS, "volumes", "jobs/control/volume_visits.py"))
def test_two_pods_share_a_volume_and_a_read_only_one_refuses_writes(pods):
    client = pods.client
    for name, fields in (("shared", {"mount_path": "/data"}), ("sets", {"is_read_only": True})):
        client.create_volume("pods", name, cluster="pods", size="1Gi", **fields)
        storage(pods, name)
    (pods.folder / "train.py").write_text(SHARES)
    job = client.submit(
        ["python3", "train.py"], queue="pods", framework="plain", nodes=2, nproc_per_node=1, directory=pods.folder,
        volumes=["shared", "sets:/sets"],
    )  # fmt: skip
    until(lambda: sorted(pods.text(job)) == ["Read-only file system", "Read-only file system", "from 0", "from 1"])
    until(lambda: client.volume("pods", "shared").state == "bound")
    seen = until(lambda: (one := client.volume("pods", "shared")).free_bytes is not None and one)
    assert seen.as_of is not None and seen.written_at is not None and 0 < seen.free_bytes <= seen.total_bytes
    with pytest.raises(Conflict, match=f"volume shared is used by job {job.name}"):
        client.delete_volume("pods", "shared")
    (pods.node.jobs / "volume-shared" / "end").write_text("")
    assert pods.until_phase(job, "succeeded", "failed").phase == "succeeded"
    for name in ("shared", "sets"):
        client.delete_volume("pods", name)
    until(lambda: not [one for one in client.volumes("pods") if one.name in ("shared", "sets")])
    claims = pods.admin.get(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims").json()["items"]
    assert not [one for one in claims if one["metadata"]["name"].startswith("muster-volume-")]
    for name in ("shared", "sets"):
        pods.admin.delete(f"/api/v1/persistentvolumes/storage-{name}")


SAVES = """
import os, pathlib
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINTS"])
if os.environ["MUSTER_INDEX"] == "0":
    for step in (100, 200):
        (folder / f"step-{step}").mkdir()
        (folder / f"step-{step}" / "model").write_text(f"weights of {step}")
"""
BEGINS = """
import os, pathlib
start = pathlib.Path(os.environ["MUSTER_FROM"]) / f"step-{os.environ['MUSTER_FROM_STEP']}"
print((start / "model").read_text(), flush=True)
try:
    (start / "model").write_text("changed")
except OSError as error:
    print(error.strerror, flush=True)
own = pathlib.Path(os.environ["MUSTER_CHECKPOINTS"])
print(sorted(path.name for path in own.iterdir()), flush=True)
"""


@pytest.mark.ci(
    guards=(*GUARDS, "jobs/submission/storage.py", "jobs/core/checkpoints.py", "jobs/ingest/checkpoint_rows.py")
)
def test_a_job_begins_from_a_checkpoint_that_another_job_s_pods_wrote(pods):
    client = pods.client

    def ran(script: str, **fields: int):
        (pods.folder / "train.py").write_text(script)
        job = client.submit(
            ["python3", "train.py"], queue="pods", framework="plain", nodes=2, nproc_per_node=1, directory=pods.folder,
            fields=fields,
        )  # fmt: skip
        ended = pods.until_phase(job, "succeeded", "failed")
        assert ended.phase == "succeeded", (ended.message, pods.text(job))
        return job

    first = ran(SAVES)
    listed = until(lambda: client.checkpoints(first.id))  # the agent lists them at its end
    assert sorted((one.name, one.step, one.size_bytes) for one in listed) == [
        ("step-100", 100, 14),
        ("step-200", 200, 14),
    ]
    spec = {"queue": "pods", "command": ["true"], "from_job": first.id, "from_step": 150}
    said = f"job {first.id} has no checkpoint of step 150 that is known; the nearest: 100 and 200"
    assert said in client.plan(spec).notes
    second = ran(BEGINS, from_job=first.id, from_step=100)
    assert sorted(pods.text(second)) == sorted(["weights of 100", "Read-only file system", "[]"] * 2)
