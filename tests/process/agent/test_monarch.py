"""Real Monarch hosts and a controller below real agents, on one machine."""

import signal
import sys
import venv
from pathlib import Path

import pytest

from embedded.ports import free_port
from jobs.frameworks.monarch import BOOTSTRAP
from tests.process.agent.bench import Bench
from tests.support.patience import PATIENCE_SECONDS

SOAK = pytest.mark.soak(guards=("agent/frameworks", "agent/ranks", "requirements/dev.lock"))


pytestmark = pytest.mark.ci

BIN = str(Path(sys.executable).parent)
# As Monarch's own examples: a job that finds its hosts by the name of their mesh.
SCRIPT = """
import argparse, os, sys
from monarch.actor import Actor, current_rank, endpoint
from monarch.job.kubernetes import KubernetesJob
parser = argparse.ArgumentParser()
parser.add_argument("--num_hosts", type=int, default=5)
parser.add_argument("--gpus_per_host", type=int, default=5)
parser.add_argument("--mesh_name", default="ddpmesh")
options = parser.parse_args()
class Worker(Actor):
    @endpoint
    def hello(self):
        print(f"self.rank={{current_rank().rank}} hello from", os.environ["MUSTER_REPLICA"], flush=True)
        return os.environ["MUSTER_REPLICA"], os.environ["MUSTER_MARK"]
    @endpoint
    def become(self, size):
        import time
        rank = current_rank().rank
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % options.gpus_per_host), WORLD_SIZE=str(size))
        while not os.readlink("/proc/self/fd/2").startswith("pipe:"):
            time.sleep(0.02)
        time.sleep(1)
    @endpoint
    def train(self):
        import muster
        print("rank", os.environ["RANK"], "trains", flush=True)
        muster.report(step=3, loss=0.5)
job = KubernetesJob(namespace="monarch-tests")
job.add_mesh(options.mesh_name, options.num_hosts)
hosts = getattr(job.state(cached_path=None), options.mesh_name)
procs = hosts.spawn_procs({{"gpus": options.gpus_per_host}})
workers = procs.spawn("workers", Worker)
answers = workers.hello.call().get()
print("ran on", sorted(set(answer for _, answer in answers.items())), flush=True)
{then}
"""


class Meshes:
    """One attempt of a Monarch job."""

    def __init__(self, bench: Bench, *, hosts: int = 2, then: str = "", command: str = "python3 train.py") -> None:
        self.bench = bench
        env = {
            "MUSTER_MONARCH_CONTROLLER": "127.0.0.1", "MUSTER_MONARCH_MESHES": f"ddpmesh={hosts}", "MUSTER_MONARCH_PROCESSES": "1",
            "MONARCH_PORT": str(free_port()), "CUDA_VISIBLE_DEVICES": "", "PATH": f"{BIN}:/usr/bin:/bin",
        }  # fmt: skip
        told = {"framework": "monarch", "grace_seconds": 10, "env": env}
        start = ["python3", "-u", "-c", BOOTSTRAP]
        self.hosts = [bench.replica(start, role="ddpmesh", index=index, **told) for index in range(hosts)]
        files = {"train.py": SCRIPT.format(then=then)}
        controller = bench.replica(command.split(), files=files, role="controller", processes=0, **told)
        self.agents = [bench.start(folder) for folder in (controller, *self.hosts)]

    def ended(self) -> list[str]:
        """Wait for the controller, end the hosts as the control plane does, and return what the controller printed."""
        self.agents[0].wait(PATIENCE_SECONDS)
        for agent in self.agents[1:]:
            agent.send_signal(signal.SIGTERM)
        for agent in self.agents[1:]:
            agent.wait(PATIENCE_SECONDS)
        return self.bench.control_plane.of("controller-0").texts()


@SOAK
def test_a_script_attaches_to_the_hosts_of_its_mesh_with_the_jobs_numbers(bench: Bench) -> None:
    meshes = Meshes(bench)
    text = meshes.ended()
    assert meshes.agents[0].returncode == 0, "\n".join(text)
    assert f"ran on {[(f'ddpmesh-{index}', bench.mark) for index in range(2)]}" in text
    for rank in range(2):
        received = bench.control_plane.of(f"ddpmesh-{rank}")
        assert received.texts(rank) == [f"self.rank={rank} hello from ddpmesh-{rank}"], received.lines
        assert received.kind("rank", rank=rank)[0]["state"] == "running"
    assert bench.carriers() == []


@SOAK
def test_an_actor_that_gets_a_rank_is_seen_by_itself(bench: Bench) -> None:
    meshes = Meshes(bench, then="workers.become.call(2).get()\nworkers.train.call().get()\nhosts.shutdown().get()")
    text = meshes.ended()
    assert meshes.agents[0].returncode == 0, "\n".join(text)
    for rank in range(2):
        received = bench.control_plane.of(f"ddpmesh-{rank}")
        assert f"rank {rank} trains" in received.texts(rank), received.lines
        assert [point[1:] for one in received.kind("metrics", rank=rank) for point in one["points"]] == [
            [3, {"loss": 0.5}]
        ]
        states = received.kind("rank", rank=rank)
        assert states[-1]["state"] == "succeeded" and any(one.get("pid") for one in states), states


@SOAK
def test_the_controllers_exception_is_its_end_and_actors_left_alive_leave_no_process(bench: Bench) -> None:
    meshes = Meshes(bench, hosts=1, then="raise ValueError('the data ran out')")
    text = meshes.ended()
    (end,) = bench.control_plane.of("controller-0").kind("replica", state="failed")
    assert end["exit_code"] == 1 and "ValueError: the data ran out" in text
    assert bench.carriers() == []


@SOAK
def test_what_the_job_does_not_have_is_named(bench: Bench) -> None:
    meshes = Meshes(bench, hosts=1, command="python3 train.py --num_hosts=3")
    text = "\n".join(meshes.ended())
    assert meshes.agents[0].returncode == 1
    assert "mesh ddpmesh has no 3 hosts; this job has ddpmesh with 1 hosts" in text


def test_a_missing_monarch_is_named(bench: Bench, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    env = {"PATH": f"{tmp_path}/bare/bin:/usr/bin:/bin", "MONARCH_PORT": "1", "MUSTER_MONARCH_MESHES": "mesh=1"}
    folder = bench.replica(["python3", "x.py"], role="controller", framework="monarch", processes=0, env=env)
    bench.start(folder, python=str(tmp_path / "bare/bin/python")).wait(PATIENCE_SECONDS)
    (end,) = bench.control_plane.of("controller-0").kind("replica", state="failed")
    assert end["exit_code"] == 127 and "Monarch is not installed here" in end["reason"]
