"""Keepers on real pods: the folder of a removed job goes from its claim, a volume is looked at, and their pods are gone then."""

import pytest

from tests.cluster.node.conftest import GUARDS, Pods
from tests.support.patience import until

WRITES = """
import os, pathlib
shared = pathlib.Path(os.environ["MUSTER_SHARED"])
(shared / "checkpoints" / "last.pt").write_text("x")
(shared / "closed").mkdir()
(shared / "closed" / "file").write_text("x")
(shared / "closed").chmod(0)
(shared / "out").symlink_to("/etc")
print("written", flush=True)
"""
REMOVE = """
from datetime import timedelta
from django.utils import timezone
from accounts.models import Team
from jobs.logs import removal
from volumes.models import Volume
Volume.objects.create(team=Team.objects.get(name="pods"), cluster="pods", name="unused", claim="packages", state="bound")
print("removed", removal.remove_due(now=timezone.now() + timedelta(hours=1)))
"""


def kept_by(pods: Pods) -> list[str]:
    return [name for one in pods.everything() if (name := one["metadata"]["name"]).startswith("muster-keeper-")]


@pytest.mark.ci(guards=(*GUARDS, "volumes", "jobs/control/keeping.py", "jobs/logs/removal.py"))
def test_a_removed_job_s_folder_disappears_and_a_volume_is_looked_at(pods):
    (pods.folder / "train.py").write_text(WRITES)
    asked = {"queue": "pods", "framework": "plain", "nodes": 1, "nproc_per_node": 1, "directory": pods.folder}
    jobs = [
        pods.client.submit(["python3", "train.py"], **asked, **more) for more in ({"fields": {"ttl_seconds": 1}}, {})
    ]
    for job in jobs:
        assert pods.until_phase(job, "succeeded", "failed").phase == "succeeded", pods.text(job)
    goes, stays = (pods.shared(job) for job in jobs)
    assert (goes / "checkpoints" / "last.pt").exists() and (stays / "checkpoints" / "last.pt").exists()
    said = pods.rig.manage("shell", "-c", REMOVE)
    assert "removed 1" in said
    until(lambda: not goes.exists())  # beat asks for a keeper once a minute
    seen = until(lambda: (one := pods.client.volume("pods", "unused")).free_bytes is not None and one)
    assert 0 < seen.free_bytes <= seen.total_bytes and seen.written_at is not None and seen.as_of is not None
    pods.client.delete_volume("pods", "unused")
    until(lambda: kept_by(pods) == [])
    assert (stays / "checkpoints" / "last.pt").exists() and stays.parent.is_dir()
