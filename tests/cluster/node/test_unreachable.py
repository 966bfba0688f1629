"""Pods that cannot reach the control plane, never or for a while. Real containers, with logs read through the kubelet."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.patience import until

SOAK = pytest.mark.soak(guards=("agent/output", "agent/wire", "jobs/clusters/kubernetes"))
TALKS_TWICE = """
import os, pathlib, time
for number in range(300):
    print(f"line {number}", flush=True)
go = pathlib.Path(os.environ["MUSTER_SHARED"], "go")
while not go.exists():
    time.sleep(0.05)
for number in range(300, 600):
    print(f"line {number}", flush=True)
while not go.with_name("end").exists():
    time.sleep(0.05)
print("line 600", flush=True)
"""
ALL = [f"line {number}" for number in range(600)]
POINTS = ("cluster.read_log.before", "cluster.read_log.after")


def said(pods, job) -> dict[int, list[str]]:
    """The job's numbered lines by rank."""
    found: dict[int, list[str]] = {}
    for line in pods.client.logs(job.id):
        if line.text.startswith("line "):
            found.setdefault(line.rank, []).append(line.text)
    return found


def by_rank(count: int, lines: list[str]) -> dict[int, list[str]]:
    return dict.fromkeys(range(count), lines)


def notes(pods, job) -> list[str]:
    return [one.message for one in pods.client.events(job.id) if one.kind == "note"]


def batches(pods, job) -> int:
    """The number of batches of the job's agents that were applied."""
    asked = f"from jobs.models import Replica; print(sum(Replica.objects.filter(job={job.id}).values_list('batch_seq', flat=True)))"
    return int(pods.rig.manage("shell", "--no-imports", "-c", asked).split()[-1])


def die_at(marks: Path, point: str) -> None:
    (marks / f"{point}.armed").touch()
    until((marks / point).exists, seconds=600)


@SOAK
def test_pods_that_never_reach_the_control_plane_and_pods_that_lose_it(pods):
    """Both at once, because a silent pod's log is read only after a minute."""
    lost = _loses_its_way(pods)
    try:
        _never_has_one(pods)
        pods.until(lost, lambda _: said(pods, lost) == by_rank(2, ALL))  # although no agent sent the rest
        pods.until(lost, lambda _: any("stopped reporting" in note for note in notes(pods, lost)))
        before = batches(pods, lost)
    finally:
        pods.gate.open()
    until(lambda: batches(pods, lost) > before, seconds=600)  # the agent resends stored lines, and they are accepted
    (pods.shared(lost) / "end").touch()
    ended = pods.until_phase(lost, "succeeded", "failed")
    assert ended.phase == "succeeded", ended.message
    assert said(pods, lost) == by_rank(2, [*ALL, "line 600"])


def _never_has_one(pods) -> None:
    """Lines come from the containers' logs although their reader is killed; a job that must fetch code fails."""
    job = pods.in_image(TALKS_TWICE, queue="nowhere", nodes=2, nproc_per_node=2)
    (pods.folder / "train.py").write_text("print('never')")
    with_code = pods.client.submit(
        ["torchrun", "train.py"], queue="nowhere", directory=pods.folder, volumes=["packages"]
    )
    pods.until(job, lambda _: [len(lines) for lines in said(pods, job).values()] == [300] * 4)
    assert pods.client.job(job.id).phase == "running"
    assert {rank.state for rank in pods.client.ranks(job.id)} == {"running"}
    assert any("cannot reach the control plane at http://" in note for note in notes(pods, job)), notes(pods, job)
    for point in POINTS:
        die_at(pods.marks, point)
    for name in ("go", "end"):
        (pods.shared(job) / name).touch()
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", ended.message
    assert said(pods, job) == by_rank(4, [*ALL, "line 600"])
    assert {(rank.state, rank.exit_code) for rank in pods.client.ranks(job.id)} == {("succeeded", 0)}
    refused = pods.until_phase(with_code, "succeeded", "failed")
    assert refused.phase == "failed"
    assert f"no answer from http://{pods.node.cable.host}:1" in refused.message, refused.message


def _loses_its_way(pods):
    job = pods.in_image(TALKS_TWICE, queue="gated", nodes=1, nproc_per_node=2)
    pods.until(job, lambda _: [len(lines) for lines in said(pods, job).values()] == [300] * 2)
    assert notes(pods, job) == []
    pods.gate.close()
    (pods.shared(job) / "go").touch()
    return job


@SOAK
def test_unsent_lines_of_a_container_killed_as_a_whole_are_not_lost(pods):
    """As the OOM killer does on newer kernels: the agent and its ranks end at once, with batches left in the spool."""
    job = pods.in_image(TALKS_TWICE, queue="gated", nodes=1, nproc_per_node=1)
    pods.until(job, lambda _: said(pods, job) == {0: ALL[:300]})
    pods.gate.close()
    try:
        (pods.shared(job) / "go").touch()
        (pod,) = pods.of(job)
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/log"
        until(lambda: "line 599\n" in pods.admin.get(path).text, seconds=600)  # present only in the pod's log
        for pid in pods.processes(pod, "start.py"):
            os.kill(pid, signal.SIGKILL)
        ended = pods.until_phase(job, "failed", "succeeded")
    finally:
        pods.gate.open()
    assert "SIGKILL (9)" in ended.message, ended.message
    assert said(pods, job) == {0: ALL}
