"""The node itself: it runs a pod with a readable log, and leaves this machine unchanged, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig import image
from rig.lending import raised
from rig.node import HIDDEN, Node, remove
from rig.plane import ControlPlane
from rig.world import NAMESPACE, settle
from tests.cluster.node.conftest import need_node
from tests.cluster.node.trace import NOTHING, cable_in, folders, kernel, trace
from tests.support.patience import until

ROOT = Path(__file__).resolve().parents[3]
POD = {
    "metadata": {"name": "speaks"},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "one", "image": image.NAME,
                "command": ["python3", "-c", "import time; print('here I am', flush=True); time.sleep(3600)"],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _here() -> None:
    need_node()


@pytest.fixture
def plane() -> Iterator[tuple[ControlPlane, Node]]:
    with raised() as both:
        yield both


def test_a_node_that_ran_a_pod_leaves_nothing_behind(request):
    settings, hidden = kernel(), folders()
    plane, node = request.getfixturevalue("plane")
    settle(plane, NAMESPACE)
    with plane.client() as admin:
        place = f"/api/v1/namespaces/{NAMESPACE}/pods"
        assert admin.post(place, json=POD).status_code == 201
        until(lambda: admin.get(f"{place}/speaks/log").text == "here I am\n")
        pod = admin.get(f"{place}/speaks").json()
    assert len(node.processes(pod["metadata"]["uid"])) == 2  # its own container and the pause container
    there = trace(node.cable, plane.folder)
    assert there["links"] and there["routes"] and there["groups"] and there["processes"]
    has_neighbours = node.cable.has_neighbours()
    node.stop()
    plane.stop()
    # The kernel removes the links of a namespace asynchronously.
    until(lambda: trace(node.cable, plane.folder) == NOTHING, says=lambda: trace(node.cable, plane.folder))
    assert kernel() == settings
    assert not plane.folder.exists()
    if not (has_neighbours or node.cable.has_neighbours()):  # another node needs the folders
        assert [name for name, content in folders().items() if content is None] == [
            name for name, content in hidden.items() if content is None
        ]


def test_killing_the_rig_ends_its_node(tmp_path):
    settings, before = kernel(), folders()
    words = [sys.executable, "-m", "rig", "up", "--nodes", "1", "--real"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    rig = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert rig.stdout is not None
        said = [rig.stdout.readline() for _ in range(4)]
        assert said[3].startswith("real node:"), said
        cable = cable_in(said[3])
        assert cable, said
        assert trace(cable, tmp_path)["links"]
    finally:
        rig.send_signal(signal.SIGKILL)
        rig.wait()
    # Empty folders remain, since no process is left to remove them.
    until(lambda: {**trace(cable, tmp_path), "groups": []} == NOTHING, says=lambda: trace(cable, tmp_path))
    assert kernel() == settings
    for path in (path for path in map(Path, HIDDEN) if path.exists() and str(path) != "/run"):
        assert sorted(os.listdir(path)) == (before[str(path)] or [])
        if before[str(path)] is None and not cable.has_neighbours():
            path.rmdir()
    assert not Path("/run/muster").exists()
    for path in map(Path, trace(cable, tmp_path)["groups"]):
        remove(path)
