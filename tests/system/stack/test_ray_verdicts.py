"""Real failures of real Ray jobs, and the verdict on each."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOAK = pytest.mark.soak(guards=("jobs/analysis", "agent/frameworks", "requirements/dev.lock"))
BEGIN = """
import os, signal, sys, time
import ray
ray.init()
"""
NESTED = """
@ray.remote
def inner(number):
    raise ValueError(f"label {number} is outside 0..9")
@ray.remote(num_cpus=0)
def outer(number):
    return ray.get(inner.remote(number))
ray.get(outer.remote(17))
"""
ACTOR_INIT = """
@ray.remote
class Trainer:
    def __init__(self, options):
        self.rate = options["rate"]
    def step(self): pass
ray.get(Trainer.remote({}).step.remote())
"""
ACTOR_KILLED = """
@ray.remote
class Trainer:
    def step(self):
        os.kill(os.getpid(), signal.SIGKILL)
ray.get(Trainer.remote().step.remote())
"""
ACTOR_WAITS = """
@ray.remote(num_cpus=1)
class Trainer:
    def where(self):
        return os.environ["MUSTER_REPLICA"]
    def step(self):
        time.sleep(600)
trainer = Trainer.remote()
print("on", ray.get(trainer.where.remote()), flush=True)
ray.get(trainer.step.remote())
"""
TRAIN_WORKER_KILLED = """
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer
def train(config):
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGKILL)
running = RunConfig(storage_path=os.environ["MUSTER_SHARED"])
TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1), run_config=running).fit()
"""
TASK_EXITS = """
@ray.remote(max_retries=0)
def step():
    os._exit(3)
ray.get(step.remote())
"""
OUT_OF_MEMORY = """
@ray.remote(max_retries=0)
def step():
    time.sleep(600)
ray.get(step.remote())
"""
INFEASIBLE = """
@ray.remote(num_gpus=8)
def step(): pass
ray.get(step.remote(){timeout})
"""
# Imported by every Python of the job before anything else.
OTHER_VERSION = """
import os
if os.environ.get("MUSTER_REPLICA", "").startswith("worker") and "RAY_ADDRESS" in os.environ:
    import ray
    ray.__version__ = "2.9.3"
"""


@dataclass(frozen=True)
class Case:
    script: str
    kind: str
    headline: str
    replica: str = "head-0"
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


CASES = {
    "actor_init": Case(ACTOR_INIT, "user_code", "KeyError: 'rate' (then ray.exceptions.ActorDiedError: The actor died because of an error raised"),
    "actor_killed": Case(ACTOR_KILLED, "signal", "ray.exceptions.ActorDiedError: the actor Trainer died because its worker process has died."),
    "task_exits": Case(TASK_EXITS, "signal", "ray.exceptions.WorkerCrashedError: The worker died unexpectedly"),
    "train_worker_killed": Case(TRAIN_WORKER_KILLED, "signal", "ray.train.WorkerGroupError: rank 0: the actor RayTrainWorker died because its worker process has died."),
    "memory_monitor": Case(
        OUT_OF_MEMORY, "host_memory", "ray.exceptions.OutOfMemoryError: ",
        env={"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"},
    ),
    "waited_in_vain": Case(
        INFEASIBLE.format(timeout=", timeout=20"), "no_place",
        'no node has what a task or an actor asks for: {"CPU": 1, "GPU": 8}; the node with most has {"CPU": 1, "GPU": 0} (then ray.exceptions.GetTimeoutError',
    ),
    "unschedulable": Case(
        INFEASIBLE.format(timeout=""), "no_place", "ray.exceptions.TaskUnschedulableError: The task is not schedulable: ",
        env={"RAY_enable_autoscaler_v2": "1", "RAY_enable_infeasible_task_early_exit": "1"},
    ),
    "other_version": Case(
        "time.sleep(600)\n", "import_error", "RuntimeError: Version mismatch: the cluster has Ray ",
        replica="worker-0", files={"sitecustomize.py": OTHER_VERSION},
    ),
}  # fmt: skip


def ended(muster, script: str, **asked):
    job = muster.submit(BEGIN + script, command="python train.py", framework="ray", **asked)
    muster.until_phase(job, "failed")
    return job, muster.client.job(job.id).first_failure


@SOAK
def test_an_error_in_a_task_of_a_task_is_the_verdict_with_its_own_frames(muster):
    job, found = ended(muster, NESTED)
    assert found.headline == "head-0: ValueError: label 17 is outside 0..9", muster.text(job)
    assert (found.kind, found.certainty) == ("user_code", "sure")
    functions = [line.rpartition(" ")[2] for line in found.traceback if "/train.py" in line]
    assert functions == ["<module>", "outer", "inner"]


@pytest.mark.soak(guards=("jobs/analysis", "agent/frameworks", "requirements/dev.lock"))
@pytest.mark.parametrize("name", CASES)
def test_a_failure_of_ray_is_named_with_its_kind(muster, name):
    case = CASES[name]
    for file, text in case.files.items():
        (muster.folder / file).write_text(text)
    job, found = ended(muster, case.script, env=case.env)
    assert found.headline.startswith(f"{case.replica}: {case.headline}"), (found.headline, muster.text(job))
    assert found.kind == case.kind


@SOAK
def test_a_killed_raylet_is_named_with_its_worker(muster):
    """The driver may fail first, because it lost its actor."""
    job = muster.submit(BEGIN + ACTOR_WAITS, command="python train.py", framework="ray", nodes=2)
    muster.until_line(job, "on worker-")
    worker = next(line for line in muster.text(job) if line.startswith("on ")).split()[1]
    programs = {
        pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0] for pid in muster.processes(job, of=worker)
    }
    (raylet,) = [pid for pid, program in programs.items() if program.endswith("/raylet")]
    os.kill(raylet, signal.SIGKILL)
    muster.until_phase(job, "failed")
    muster.until(job, lambda now: now.first_failure.replica == worker, seconds=30)
    found = muster.client.job(job.id).first_failure
    assert (found.headline, found.kind) == (f"{worker}: Ray's process raylet was ended by SIGKILL (9)", "signal")
