"""A check by pods on a real node: they reach the control plane and each other, say what their image holds, and are gone then."""

import sys

import pytest
from click.testing import CliRunner
from muster.cli import cli

from rig import image
from tests.cluster.node.conftest import GUARDS, Pods
from tests.support.patience import until


def left(pods: Pods) -> list[str]:
    return [name for one in pods.everything() if (name := one["metadata"]["name"]).startswith("muster-check-")]


def told(found) -> dict[str, list[tuple[str, str]]]:
    by_subject: dict[str, list[tuple[str, str]]] = {}
    for one in found:
        by_subject.setdefault(one.about, []).append((one.state, one.words))
    return by_subject


@pytest.mark.ci(guards=(*GUARDS, "jobs/control/cluster_checks.py", "jobs/submission/cluster_checks.py"))
def test_pods_of_a_check_reach_the_control_plane_and_each_other_and_name_what_their_image_holds(pods):
    check = pods.client.check_pods("pods")
    assert not check.is_running and check.image == image.NAME and check.asked_by == "admin"
    found = told(check.findings)
    assert [state for state, _ in found["pods"]] == ["ok"]
    (control,) = found["control plane"]
    assert control[0] == "ok" and "a pod reaches it at http://" in control[1]
    (network,) = found["network"]
    assert network[0] == "ok" and "a pod reaches another one at port 29500 on node" in network[1]
    assert found["names"] == [("ok", "a pod resolves kubernetes.default.svc")]
    holds, lacks = found["image"]
    assert f"{image.NAME} holds Python {sys.version.split()[0]}" in holds[1]
    assert lacks == (
        "note",
        f"{image.NAME} holds no torch and no ray and no torchmonarch: jobs of torchrun and ray and monarch that bring none do not run in it",
    )
    until(lambda: left(pods) == [])


@pytest.mark.ci(guards=(*GUARDS, "jobs/control/cluster_checks.py", "jobs/submission/cluster_checks.py"))
def test_a_control_plane_that_pods_do_not_reach_and_an_image_that_is_not_there(pods):
    found = told(pods.client.check_pods("nowhere", queue="nowhere").findings)
    (control,) = found["control plane"]
    assert control[0] == "wrong" and "nothing answers a pod" in control[1]
    check = pods.client.check_pods("pods", image="rig/not-there:1")
    (one,) = check.findings
    assert one.state == "wrong" and "rig/not-there:1" in one.words and "IMAGE" in one.remedy
    until(lambda: left(pods) == [])


@pytest.mark.ci(guards=(*GUARDS, "client/muster/commands/clusters.py"))
def test_the_command_waits_for_them_and_shows_the_cluster_s_events_of_a_job(pods):
    env = {"MUSTER_URL": pods.client.url, "MUSTER_TOKEN": pods.rig.token}
    done = CliRunner().invoke(cli, ["clusters", "check", "pods", "--pods"], env=env)
    assert "a pod reaches another one" in done.stdout.lower() and "Kubernetes v1" in done.stdout, done.output
    job = pods.submit("print('hello')", command=("python3", "train.py"), framework="plain")
    pods.until_phase(job, "succeeded")
    found = pods.client.cluster_events(job.id)
    assert {"Scheduled", "Started"} <= {one.reason for one in found.events}, found
    shown = CliRunner().invoke(cli, ["events", str(job.id), "--cluster"], env=env)
    assert shown.exit_code == 0 and "Scheduled" in shown.stdout and f"Pod/{pods.run(job)}-1-" in shown.stdout
