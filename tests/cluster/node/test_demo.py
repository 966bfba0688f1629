"""`bin/demo --cluster rig`: the sample job on real pods, without anything left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import until
from tests.cluster.node.conftest import need_node
from tests.cluster.node.trace import trace
from tests.process.embedded.world import ROOT, processes_naming

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


@pytest.mark.long
@pytest.mark.parametrize(("framework", "replicas", "ranks"), [("torchrun", 2, 4), ("ray", 3, 0), ("monarch", 3, 4)])
def test_the_demo_runs_on_real_pods_once_and_leaves_nothing_behind(env, tmp_path, framework, replicas, ranks):
    need_node()
    before = trace()
    argv = [ROOT / "bin/demo", *RIG, "--framework", framework]
    ended = subprocess.run(argv, env=env, text=True, capture_output=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    seconds = result.pop("seconds")
    assert result == {"job": 1, "phase": "succeeded", "attempts": 1, "replicas": replicas, "ranks": ranks}
    assert seconds > 0
    until(lambda: trace() == before)
    assert processes_naming(str(tmp_path)) == []


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
