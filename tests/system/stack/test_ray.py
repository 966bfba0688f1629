"""Real Ray jobs of a whole installation: driver, workers, what tasks print, a checkpoint at a suspension, Ray Train."""

import pytest

from tests.system.stack.conftest import ROOT

SOAK = pytest.mark.soak(guards=("agent/frameworks", "jobs/frameworks", "jobs/clusters/local", "requirements/dev.lock"))
DRIVER = """
import os, sys, time
import ray
ray.init()
@ray.remote(num_cpus=1)
def task(number):
    print("task", number, "of", os.environ["MUSTER_REPLICA"], flush=True)
    return number * number
print("squares", ray.get([task.remote(number) for number in range(4)]), flush=True)
print("nodes", len(ray.nodes()), flush=True)
"""
WAITS = (
    DRIVER
    + """
kept = os.path.join(os.environ["MUSTER_SHARED"], "kept")
if os.path.exists(kept):
    print("resumed", open(kept).read(), flush=True)
    sys.exit(0)
@ray.remote(num_cpus=1)
class Keeper:
    def state(self):
        return "from step 7"
keeper = Keeper.remote()
ray.get(keeper.state.remote())
import signal
def save(number, frame):
    with open(kept, "w") as file:
        file.write(ray.get(keeper.state.remote()))
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""
)
FOUR = [0, 1, 4, 9]


def cluster_of(muster, job):
    """The job's cluster as its head tells of it, once its actor is there."""
    (head,) = [one for one in muster.client.replicas(job.id) if one.role == "head"]
    told = head.raw.get("nodes")
    return told if told and any(node["actors"] for node in told["nodes"]) else None


def submit(muster, script: str = DRIVER, **asked):
    return muster.submit(script, command="python train.py", framework="ray", **asked)


@SOAK
def test_tasks_run_on_workers_and_the_drivers_end_is_the_jobs(muster):
    job = submit(muster, nodes=2)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text)
    assert f"squares {FOUR}" in text and "nodes 3" in text
    ran = {line.rpartition(" of ")[0]: line.rpartition(" ")[2] for line in text if line.startswith("task ")}
    assert set(ran) == {f"task {number}" for number in range(4)}
    assert set(ran.values()) <= {"worker-0", "worker-1"}
    assert muster.processes(job) == []
    assert (ended.layout, ended.ranks.total) == ("1 head + 2 worker", 0)


@SOAK
def test_a_suspended_one_saves_with_its_cluster_and_goes_on_from_there(muster):
    job = submit(muster, WAITS)
    muster.until_line(job, "up")
    nodes = muster.until_true(lambda: cluster_of(muster, job))
    assert nodes["framework"].startswith("Ray 2.")
    head, worker = nodes["nodes"]
    assert (head["name"], head["actors"], worker["name"], worker["actors"]) == ("head-0", 0, "worker-0", 1)
    assert worker["cpu"] == [1.0, 1.0] and worker["object_store_bytes"][1] > 0
    muster.client.suspend(job.id)
    muster.until_phase(job, "suspended")
    assert muster.processes(job) == []
    muster.client.resume(job.id)
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded", (ended.message, muster.text(job))
    assert "resumed from step 7" in muster.text(job)


@SOAK
def test_a_driver_that_ends_while_tasks_run_has_succeeded_and_ends_them(muster):
    sleeps = "@ray.remote(num_cpus=1)\ndef sleep():\n    time.sleep(3600)\nleft = sleep.remote()\nprint('over', flush=True)\n"
    job = submit(muster, DRIVER + sleeps, nodes=1)
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "succeeded" and "over" in muster.text(job), (ended.message, muster.text(job))
    assert muster.processes(job) == []


@SOAK
def test_the_drivers_exception_is_the_headline(muster):
    job = submit(muster, DRIVER + "raise ValueError('the data ran out')\n", nodes=1)
    ended = muster.until_phase(job, "succeeded", "failed")
    assert ended.phase == "failed"
    assert "ValueError: the data ran out" in ended.message


@SOAK
def test_the_ranks_of_ray_train_are_ranks_like_any_other(muster):
    command = ["python", "ray_digits.py", "--epochs", "2"]
    job = muster.client.submit(
        command, queue="default", directory=ROOT / "examples", framework="ray", nodes=2, nproc_per_node=1
    )
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text[-40:])
    assert any(line.startswith("test accuracy ") for line in text)
    assert not any("State API" in line for line in text)
    ranks = {one.rank: one for one in muster.client.ranks(job.id)}
    assert set(ranks) == {0, 1} and {one.state for one in ranks.values()} == {"succeeded"}
    assert {one.replica for one in ranks.values()} == {"worker-0", "worker-1"}
    assert all(one.step and one.step > 50 for one in ranks.values())
    assert "ray/accuracy" in [one.name for one in muster.client.metrics(job.id)]
    for rank in ranks:
        lines = [line.text for line in muster.client.logs(job.id, rank=rank)]
        assert lines.count(f"rank {rank} of 2") == 1 and any(line.startswith("step ") for line in lines)


@SOAK
def test_the_example_of_tasks_runs_on_all_workers(muster):
    command = ["python", "ray_tasks.py", "--tasks", "20", "--points", "1000"]
    job = muster.client.submit(command, queue="default", directory=ROOT / "examples", framework="ray", nodes=2)
    ended = muster.until_phase(job, "succeeded", "failed")
    text = muster.text(job)
    assert ended.phase == "succeeded", (ended.message, text)
    assert "3 Ray nodes, 2 CPUs for tasks" in text
    assert any(line.startswith("20 of 20 tasks: pi is about 3.") for line in text)
