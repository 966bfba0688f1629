"""`bin/demo --cluster rig`: the sample job on real pods, without anything left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig.network import Cable
from tests.cluster.node.conftest import need_node
from tests.cluster.node.trace import NOTHING, cable_in, kernel, trace
from tests.process.embedded.world import ROOT, processes_naming
from tests.support.patience import until

SOAK = pytest.mark.soak(guards=("bin", "embedded", "rig", "agent/frameworks", "jobs/frameworks"))
OTHERS = (
    "DATABASE_URL",
    "REDIS_URL",
    "MUSTER_SECRET_KEY",
    "MUSTER_ALLOWED_HOSTS",
    "MUSTER_PUBLIC_URL",
    "MUSTER_CLUSTERS",
)
MODULE = [sys.executable, "-m", "embedded", "demo"]
RIG = ["--cluster", "rig", "--once", "--port", "0"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    return {**kept, "MUSTER_DATA_DIR": str(tmp_path / "data")}


@pytest.mark.parametrize(
    ("framework", "replicas", "ranks"),
    [
        pytest.param("torchrun", 2, 4, marks=pytest.mark.full),
        pytest.param("ray", 3, 0, marks=SOAK),
        pytest.param("monarch", 3, 4, marks=SOAK),
    ],
)
def test_the_demo_runs_on_real_pods_once_and_leaves_nothing_behind(env, tmp_path, framework, replicas, ranks):
    need_node()
    settings = kernel()
    argv = [ROOT / "bin/demo", *RIG, "--framework", framework]
    out, errors = tmp_path / "out", tmp_path / "errors"
    with out.open("w") as stdout, errors.open("w") as stderr:
        demo = subprocess.Popen(argv, env={**env, "TMPDIR": str(tmp_path)}, stdout=stdout, stderr=stderr)
    try:
        until(lambda: _cable(tmp_path) or demo.poll() is not None)
        cable = _cable(tmp_path)
        assert demo.wait(900) == 0 and cable, out.read_text() + errors.read_text()
    finally:
        demo.kill()
    result = json.loads(out.read_text().splitlines()[-1])
    seconds = result.pop("seconds")
    assert result == {"job": 1, "phase": "succeeded", "attempts": 1, "replicas": replicas, "ranks": ranks}
    assert seconds > 0
    until(lambda: trace(cable, tmp_path) == NOTHING, says=lambda: trace(cable, tmp_path))
    assert kernel() == settings


def _cable(folder: Path) -> Cable | None:
    """The one of the rig with its files in this folder: the API server listens on it."""
    return cable_in(" ".join(processes_naming(str(folder))))


def test_without_the_means_for_a_cluster_one_line_names_the_remedy(env, tmp_path):
    """The programs are not built and cannot be, or the user is not root."""
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": _without_go(env["PATH"])}
    ended = subprocess.run([*MODULE, *RIG], env=env, cwd=ROOT, text=True, capture_output=True, timeout=300, check=False)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "install Go" in line if os.geteuid() == 0 else "run this as root" in line
    assert json.loads(ended.stdout.splitlines()[-1])["phase"] is None
    assert processes_naming(str(tmp_path)) == []


def _without_go(path: str) -> str:
    return os.pathsep.join(one for one in path.split(os.pathsep) if not Path(one, "go").exists())
