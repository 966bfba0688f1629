"""Connecting Muster to a cluster with the commands of the README, up to a running job."""

import base64
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rig.world import account_namespace, username
from tests.cluster.api import account_before
from tests.cluster.conftest import TOLERATIONS, end, run_all

ROOT = Path(__file__).resolve().parents[3]
WORDS = ["gpus", "--image", "x:1", "--control-url", "http://muster.test"]


def connect(place, folder: Path, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig or place.plane.kubeconfig)}
    argv = [sys.executable, "-m", "controlplane.operations.connect", *WORDS, "--namespace", place.namespace, *words]
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


def user_of(kubeconfig: Path) -> str:
    """Whom the kubeconfig's token names, as it says itself."""
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])


def test_connect_prints_the_setting_of_a_cluster_that_runs_jobs(place, tmp_path):
    done = connect(place, tmp_path, "--days", "30")
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)["gpus"]
    assert entry["BACKEND"] == "jobs.clusters.kubernetes.KubernetesCluster"
    path = Path(entry["OPTIONS"]["KUBECONFIG"])
    assert path == tmp_path / "gpus.kubeconfig" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "rig-admin" not in path.read_text()
    cluster = place.cluster(**{**entry["OPTIONS"], "TOLERATIONS": TOLERATIONS})
    run_all(cluster)
    end(cluster)


def test_running_connect_again_renews_the_same_file(place, tmp_path):
    tokens = set()
    for _ in range(2):
        assert connect(place, tmp_path).returncode == 0
        tokens.add((tmp_path / "gpus.kubeconfig").read_text())
    assert len(tokens) == 2


def test_the_account_outside_of_the_namespace_of_jobs_is_used(place, tmp_path):
    done = connect(place, tmp_path)
    assert user_of(tmp_path / "gpus.kubeconfig") == username(place.namespace)
    assert "earlier release" not in done.stderr


def test_where_only_the_account_of_an_earlier_release_exists_it_is_used_and_named(place, tmp_path):
    namespace = f"{place.namespace}-before"
    account_before.install(place.plane, place.admin, namespace)
    done = connect(place, tmp_path, "--namespace", namespace)
    assert done.returncode == 0, done.stderr
    assert user_of(tmp_path / "gpus.kubeconfig") == account_before.username(namespace)
    assert f"{namespace}/muster is the account of an earlier release" in done.stderr
    place.admin.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_missing_account_is_reported_with_the_command_that_creates_it(place, tmp_path, is_bound):
    namespace = place.namespace if is_bound else "elsewhere"
    for one in (namespace, account_namespace(namespace)) if is_bound else ():
        place.admin.delete(f"/api/v1/namespaces/{one}/serviceaccounts/muster").raise_for_status()
    done = connect(place, tmp_path, "--namespace", namespace)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"kubectl apply -f deploy/account.yaml with muster-jobs replaced by {namespace} throughout" in line


def test_who_may_not_read_the_binding_is_told_in_one_line(place, tmp_path):
    done = connect(place, tmp_path, kubeconfig=place.kubeconfig)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"does not show RoleBinding muster of namespace {place.namespace}" in line and "Forbidden" in line


def test_a_missing_kubeconfig_is_reported_in_one_line(place, tmp_path):
    done = connect(place, tmp_path, kubeconfig=tmp_path / "missing")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "set KUBECONFIG" in done.stderr


def test_the_readme_has_at_most_three_commands_and_their_files_exist():
    text = (ROOT / "README.md").read_text().partition("## Point Muster at a cluster")[2].partition("\n## ")[0]
    commands = [line for line in re.findall(r"```\n(.*?)```", text, re.S)[0].splitlines() if line.strip()]
    assert 1 <= len(commands) <= 3
    named = set(re.findall(r"\b(?:bin|deploy)/[\w.]+", text))
    assert {"deploy/account.yaml", "bin/connect", "bin/demo"} <= named
    assert [name for name in named if not (ROOT / name).exists()] == []
