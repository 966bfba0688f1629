"""A Monarch job on real pods: its script asks the cluster's API for the hosts, as it would without Muster."""

import os
import signal

import pytest

from rig.world import NAMESPACE
from tests.cluster.node.conftest import GUARDS
from tests.support.monarch_operator import NEW, Operator, defined
from tests.support.patience import until
from tests.system.stack.test_monarch import SCRIPT, WAITS

SOAK = pytest.mark.soak(
    guards=("agent/frameworks", "jobs/frameworks", "jobs/clusters/kubernetes", "requirements/dev.lock")
)


@pytest.mark.ci(guards=GUARDS)
def test_a_script_finds_its_hosts_in_the_clusters_own_api(pods):
    job = pods.submit(
        SCRIPT,
        command=["python3", "train.py"],
        framework="monarch",
        nodes=2,
        nproc_per_node=2,
        fields={"mesh_name": "ddpmesh"},
    )
    until(lambda: len(pods.of(job)) == 3)
    accounts = {one["metadata"]["name"].split("-")[-2]: one["spec"]["serviceAccountName"] for one in pods.of(job)}
    assert accounts == {"ddpmesh": "default", "controller": "muster-reader"}
    ended = pods.until_phase(job, "succeeded", "failed")
    text = pods.text(job)
    assert ended.phase == "succeeded", (ended.message, text)
    assert f"ran on {['ddpmesh-0', 'ddpmesh-0', 'ddpmesh-1', 'ddpmesh-1']}" in text
    assert pods.of(job) == []


@SOAK
def test_a_second_job_with_the_same_mesh_starts_when_the_first_ones_pods_are_gone(pods):
    asked = {"command": ["python3", "train.py"], "framework": "monarch", "nodes": 1, "fields": {"mesh_name": "shared"}}
    first = pods.submit(WAITS, **asked)
    pods.until_line(first, "ran on ['shared-0']")
    second = pods.submit(SCRIPT, **asked)
    pods.until(second, lambda now: f"mesh shared is in use by job {first.id}" in now.message)
    pods.client.cancel(first.id)
    ended = pods.until_phase(second, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(second))
    assert "ran on ['shared-0']" in pods.text(second)


@SOAK
def test_the_hosts_of_an_operators_mesh_end_with_the_job_and_start_once(pods):
    asked = {
        "command": ["python3", "train.py"], "framework": "monarch", "nodes": 2,
        "fields": {"mesh_name": "ddpmesh", "mesh_launcher": "MonarchMesh"},
    }  # fmt: skip
    with defined(pods.admin, NEW), Operator(pods.admin, NAMESPACE, NEW):
        job = pods.submit(SCRIPT, **asked)
        ended = pods.until_phase(job, "succeeded", "failed")
        assert ended.phase == "succeeded", (ended.message, pods.text(job))
        assert "ran on ['ddpmesh-0', 'ddpmesh-1']" in pods.text(job)
        until(lambda: pods.of(job) == [])

        job = pods.submit(WAITS, **asked)
        pods.until_line(job, "ran on")
        (host,) = [one for one in pods.of(job) if one["metadata"]["name"] == "ddpmesh-1"]
        (loop,) = pods.processes(host, "run_worker_loop_forever")
        os.kill(loop, signal.SIGKILL)
        ended = pods.until_phase(job, "succeeded", "failed")
        assert ended.phase == "failed" and "ddpmesh-1" in ended.message, (ended.message, pods.text(job))
        assert ended.first_failure.replica == "ddpmesh-1"
        assert sum(line.startswith("ran on") for line in pods.text(job)) == 1
        until(lambda: pods.of(job) == [])
