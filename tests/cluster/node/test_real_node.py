"""Jobs on real pods, through the whole installation: HTTP, Postgres, Celery, watcher, API server, kubelet, containers."""

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.digits import assert_trained

SOAK = pytest.mark.soak(guards=("agent/output", "agent/ranks", "jobs/clusters/kubernetes", "jobs/core"))
WAITS = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
print("ready", dist.get_rank(), flush=True)
time.sleep(3600)
"""
TALKS = """
import os, pathlib, time
go = pathlib.Path(os.environ["MUSTER_SHARED"], "go")
print("about to talk", flush=True)
while not go.exists():
    time.sleep(0.05)
for number in range(5000):
    print(f"line {number}", flush=True)
os._exit(0)
"""
TALKS_ON = """
import itertools, os, time
last = os.open(os.path.join(os.environ["MUSTER_SHARED"], "last"), os.O_RDWR | os.O_CREAT)
for number in itertools.count():
    print(f"line {number}", flush=True)
    os.pwrite(last, b"%09d" % number, 0)
    if number % 100 == 0:
        time.sleep(0.02)
"""
GROWS = """
print("growing", flush=True)
kept = []
while True:
    kept.append(bytearray(b"x" * (16 << 20)))
"""
LOADS = """
import errno, os, pathlib
import torch, torch._dynamo
from torch.utils.data import DataLoader, TensorDataset

def double(x):
    return x + x

def main():
    try:
        pathlib.Path("/etc/x").touch()
    except OSError as error:
        root = {errno.EROFS: "read-only"}.get(error.errno, error)
    loader = DataLoader(TensorDataset(torch.ones(64, 3, 256, 256)), batch_size=8, num_workers=2)
    count = sum(1 for _ in loader)
    four = torch.compile(double, backend="eager")(torch.tensor(2.0)).item()
    print(f"user {os.getuid()}, root {root}, batches {count}, compiled {four}", flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.full
def test_the_digits_job_trains_on_two_pods_and_resumes_from_its_checkpoint(pods):
    """2 pods of 2 ranks, suspended midway: two starts in all, each with half a minute of imports on two cores."""
    job = pods.digits("--save-every", "20", "--step-delay", "0.02", "--epochs", "20")
    pods.until_line(job, "step 60 ")
    pods.client.suspend(job.id)
    pods.until_phase(job, "suspended")
    assert pods.of(job) == []
    assert pods.checkpoints(job)
    pods.client.resume(job.id)
    pods.until_line(job, "going on from")
    resumed = next(line for line in pods.text(job) if "going on from" in line)
    assert int(re.findall(r"step-(\d+)", resumed)[0]) >= 60
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job)[-30:])
    assert (ended.attempt, ended.failures) == (2, 0)
    assert_trained(pods.client, job, ranks=4)
    assert pods.of(job) == []


@pytest.mark.full
def test_an_externally_killed_container_fails_the_attempt_and_the_next_one_runs(pods):
    job = pods.submit(WAITS, nodes=2, max_retries=1)
    pods.until_line(job, "ready", times=2)
    first = pods.of(job)
    for pid in pods.processes(first[1], "agent.pyz --state"):
        with contextlib.suppress(ProcessLookupError):  # the guardian may have ended with its agent
            os.kill(pid, signal.SIGKILL)
    pods.until(job, lambda now: now.attempt == 2 and now.ranks.running == 2)
    assert pods.client.job(job.id).failures == 1
    assert {one["metadata"]["uid"] for one in pods.of(job)}.isdisjoint(one["metadata"]["uid"] for one in first)
    assert "worker-1 was ended by SIGKILL (9); retry 1 of 1" in [one.message for one in pods.client.events(job.id)]


def began(pid: int) -> int:
    """Return when a process began, in ticks since the machine's start: the numbers of processes begin again at some time."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_an_agent_killed_while_its_rank_prints_loses_and_duplicates_no_line(pods):
    """The OOM killer may choose the agent as well as the rank."""
    job = pods.submit(TALKS_ON)
    pods.until_line(job, "line 3000")
    (pod,) = pods.of(job)
    place = pods.node.jobs / pods.run(job) / "last"
    os.kill(min(pods.processes(pod, "agent.pyz --state"), key=began), signal.SIGKILL)  # the other one is its guardian
    ended = pods.until_phase(job, "failed", "succeeded")
    assert "SIGKILL (9)" in ended.message, ended.message
    said = [line for line in pods.text(job) if line.startswith("line ")]
    assert said == [f"line {number}" for number in range(len(said))]
    assert len(said) >= int(place.read_text())


def test_a_container_killed_as_a_whole_fails_with_that_signal(pods):
    job = pods.submit(WAITS)
    pods.until_line(job, "ready")
    (pod,) = pods.of(job)
    for pid in pods.processes(pod, "start.py"):
        os.kill(pid, signal.SIGKILL)
    ended = pods.until_phase(job, "failed", "succeeded")
    assert ended.phase == "failed"
    assert "SIGKILL (9)" in ended.message, ended.message


@SOAK
def test_a_manually_deleted_pod_ends_the_whole_attempt_and_the_next_one_runs(pods):
    job = pods.submit(WAITS, nodes=2, max_retries=1)
    pods.until_line(job, "ready", times=2)
    pods.remove("pods", pods.of(job)[0]["metadata"]["name"])
    pods.until(job, lambda now: now.attempt == 2 and now.ranks.running == 2)
    assert len(pods.of(job)) == 2


@SOAK
def test_a_manually_deleted_service_ends_the_attempt_and_the_next_one_has_its_own(pods):
    job = pods.submit(WAITS, nodes=2, max_retries=1)
    pods.until_line(job, "ready", times=2)
    (owner,) = pods.of(job, "services")
    pods.remove("services", owner["metadata"]["name"])
    pods.until(job, lambda now: now.attempt == 2 and now.ranks.running == 2)
    (successor,) = pods.of(job, "services")
    owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in pods.of(job)}
    assert owners == {successor["metadata"]["uid"]}


@SOAK
def test_the_last_line_of_a_pod_deleted_as_it_exits_is_in_the_log(pods):
    job = pods.submit(TALKS)
    pods.until_line(job, "about to talk")
    (pod,) = pods.of(job)
    ranks = pods.processes(pod, "train.py")
    (pods.node.jobs / pods.run(job) / "go").touch()
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        pass
    pods.remove("pods", pod["metadata"]["name"])
    pods.until(job, lambda now: now.is_finished)
    said = [line for line in pods.text(job) if line.startswith("line ")]
    assert said == [f"line {number}" for number in range(5000)]


@pytest.mark.full
def test_a_rank_out_of_memory_is_named_and_its_earlier_output_is_kept(pods):
    job = pods.submit(GROWS, queue="small")
    ended = pods.until_phase(job, "failed", "succeeded")
    assert ended.phase == "failed"
    # The kernel kills the rank or its launcher, which has imported torch too; in the latter case no rank is blamed.
    first = ended.first_failure
    assert first.rank in (0, None)
    assert (first.replica, first.signal, first.kind) == ("worker-0", signal.SIGKILL, "host_memory")
    assert pods.text(job).count("growing") == 1
    assert "memory" in ended.message


@SOAK
def test_torch_dynamo_and_data_loaders_work_on_a_read_only_root_as_an_ordinary_user(pods):
    job = pods.submit(LOADS)
    ended = pods.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, pods.text(job)[-30:])
    assert "user 1000, root read-only, batches 8, compiled 4.0" in pods.text(job)
