"""The node itself: it runs a pod with a readable log, and leaves this machine unchanged, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig import image
from rig.lending import raised
from rig.node import HIDDEN, Node, remove
from rig.plane import ControlPlane
from rig.world import NAMESPACE, settle
from tests.cluster.conftest import until
from tests.cluster.node.conftest import need_node
from tests.cluster.node.trace import trace

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
    before = trace()
    plane, node = request.getfixturevalue("plane")
    settle(plane, NAMESPACE)
    with plane.client() as admin:
        place = f"/api/v1/namespaces/{NAMESPACE}/pods"
        assert admin.post(place, json=POD).status_code == 201
        until(lambda: admin.get(f"{place}/speaks/log").text == "here I am\n")
        pod = admin.get(f"{place}/speaks").json()
    assert len(node.processes(pod["metadata"]["uid"])) == 2  # its own container and the pause container
    assert node.cable.name in trace()["links"]
    node.stop()
    plane.stop()
    until(lambda: trace() == before)  # the kernel removes the links of a namespace asynchronously
    assert not plane.folder.exists()


def test_killing_the_rig_ends_its_node(tmp_path):
    before = trace()
    words = [sys.executable, "-m", "rig", "up", "--nodes", "1", "--real"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    rig = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert rig.stdout is not None
        said = [rig.stdout.readline() for _ in range(4)]
        assert said[3].startswith("real node:"), said
        assert trace() != before
    finally:
        rig.send_signal(signal.SIGKILL)
        rig.wait()
    # Empty folders remain, since no process is left to remove them.
    until(lambda: _without_folders(trace()) == _without_folders(before))
    for path in map(Path, HIDDEN):
        there = sorted(os.listdir(path)) if path.exists() else []
        assert there == (before["folders"][str(path)] or [])
        if before["folders"][str(path)] is None and path.exists():
            path.rmdir()
    for path in Path("/sys/fs/cgroup").glob("*/muster-*"):
        if str(path) not in before["groups"]:  # another node may be up
            remove(path)


def _without_folders(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in ("groups", "folders")}
