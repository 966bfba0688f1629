"""Real Ray nodes below real agents: a cluster of its own for each job, on one machine."""

import signal
import sys
import venv
from pathlib import Path

import pytest

from embedded.ports import free_port
from tests.process.agent.bench import ENDED, Bench
from tests.support.fake_control_plane import FakeControlPlane, Received
from tests.support.patience import PATIENCE_SECONDS

SOAK = pytest.mark.soak(guards=("agent/frameworks", "agent/ranks", "requirements/dev.lock"))


pytestmark = pytest.mark.ci

BIN = str(Path(sys.executable).parent)
DRIVER = """
import os, socket, sys, time
import ray
ray.init({init})
@ray.remote(num_cpus=1)
def where(number):
    print("task", number, "prints", flush=True)
ray.get([where.remote(number) for number in range(8)])
@ray.remote(num_cpus=1)
class Holding:
    def place(self):
        return os.environ["MUSTER_REPLICA"], os.environ["MUSTER_MARK"]
held = [Holding.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]  # all CPUs at once, so every worker's
print("ran on", sorted(set(ray.get([one.place.remote() for one in held]))), flush=True)
held.clear()
print("nodes", len(ray.nodes()), "cpus", ray.cluster_resources()["CPU"], flush=True)
{then}
"""
SLOW = """
import sys, time
if any(word.endswith(("dashboard/agent.py", "runtime_env/agent/main.py")) for word in sys.orig_argv):
    time.sleep(20)
"""
START = ["ray", "start", "--address=$RAY_ADDRESS", "--block"]


class Cluster:
    """One attempt of a Ray job."""

    def __init__(
        self, bench: Bench, *, workers: int = 2, then: str = "", init: str = "", cpus: int = 1, path: str = "",
        modules: str = "",
    ) -> None:  # fmt: skip
        self.bench = bench
        port = free_port()
        common = {
            "RAY_ADDRESS": f"127.0.0.1:{port}", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5" * 64, "RAY_LOG_TO_DRIVER": "0",
            "RAY_USAGE_STATS_ENABLED": "0", "CUDA_VISIBLE_DEVICES": "", "PATH": f"{path}{BIN}:/usr/bin:/bin", "PYTHONPATH": modules,
        }  # fmt: skip
        told = {"framework": "ray", "processes": 0, "grace_seconds": 20}
        files = {"driver.py": DRIVER.format(init=init, then=then)}
        head = {**common, "MUSTER_RAY_CPUS": "0", "MUSTER_RAY_NODES": str(workers)}
        self.head = bench.replica(["python", "driver.py"], files=files, role="head", env=head, hold_port=port, **told)
        worker = {**common, "MUSTER_RAY_CPUS": str(cpus)}
        self.workers = [bench.replica(START, index=index, env=worker, **told) for index in range(workers)]
        self.agents = [bench.start(folder) for folder in (self.head, *self.workers)]

    def ended(self) -> Received:
        """Wait for the driver, end the workers as the control plane does, and return what the head sent."""
        self.agents[0].wait(PATIENCE_SECONDS)
        for agent in self.agents[1:]:
            agent.send_signal(signal.SIGTERM)
        for agent in self.agents[1:]:
            agent.wait(PATIENCE_SECONDS)
        return self.bench.control_plane.of("head-0")

    @property
    def code(self) -> int | None:
        return self.agents[0].returncode


@pytest.mark.ci(guards=("agent",))
def test_a_driver_finds_its_own_cluster_and_tasks_run_on_its_workers(bench: Bench, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    cluster = Cluster(bench, path=f"{tmp_path}/bare/bin:")  # whose python has no Ray
    received = cluster.ended()
    text = received.texts()
    assert cluster.code == 0, "\n".join(text)
    ran_on = [("worker-0", bench.mark), ("worker-1", bench.mark)]
    assert f"ran on {ran_on}" in text
    assert "nodes 3 cpus 2.0" in text
    printed = [line for index in range(2) for line in bench.control_plane.of(f"worker-{index}").texts()]
    assert sorted(line for line in printed if line.startswith("task ")) == [f"task {n} prints" for n in range(8)], (
        printed
    )
    assert not any(line.startswith(("task ", ":")) for line in text), text


@SOAK
def test_a_node_whose_agents_start_slowly_still_joins(bench: Bench, tmp_path: Path) -> None:
    """As on a busy machine or with packages on a slow volume: Ray's raylet aborts after 15 s without their ports."""
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    cluster = Cluster(bench, workers=1, modules=str(tmp_path))
    text = cluster.ended().texts()
    assert cluster.code == 0, "\n".join(text)
    assert "nodes 2 cpus 1.0" in text


@SOAK
def test_a_driver_that_fails_and_leaves_actors_alive_leaves_no_process_and_no_files(bench: Bench) -> None:
    then = """
@ray.remote(num_cpus=0, lifetime="detached", name="left")
class Left:
    def pid(self):
        import subprocess
        return subprocess.Popen(["sleep", "600"]).pid
print("left", ray.get(Left.remote().pid.remote()), flush=True)
raise ValueError("the data ran out")
"""
    cluster = Cluster(bench, workers=1, init='address="auto"', then=then)
    temps = []
    for folder in (cluster.head, *cluster.workers):
        bench.wait_for((folder / "ray-tmp").exists)
        temps.append(Path((folder / "ray-tmp").read_text()))
    received = cluster.ended()
    assert cluster.code == 1
    (end,) = received.kind("replica", state="failed")
    assert end["exit_code"] == 1 and "ValueError: the data ran out" in received.texts()
    assert any(line.startswith("left ") for line in received.texts())
    assert bench.carriers() == []
    assert not any(path.exists() for path in temps)


@SOAK
def test_a_stop_reaches_the_driver_while_its_cluster_is_up(bench: Bench) -> None:
    then = """
import signal
@ray.remote(num_cpus=1)
class Keeper:
    def state(self):
        return "step 7"
keeper = Keeper.remote()
ray.get(keeper.state.remote())
def save(number, frame):
    print("saved", ray.get(keeper.state.remote()), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""
    cluster = Cluster(bench, workers=1, then=then)
    bench.wait_for(lambda: "up" in bench.control_plane.of("head-0").texts())
    for agent in cluster.agents:
        agent.send_signal(signal.SIGTERM)
    received = cluster.ended()
    assert "saved step 7" in received.texts()
    assert cluster.code == 0


@SOAK
def test_requests_that_no_node_can_hold_are_named_while_the_driver_waits(bench: Bench) -> None:
    then = """
import psutil
print("children", [one.name() for one in psutil.Process().children()], flush=True)
@ray.remote(num_gpus=8)
def infeasible(): pass
@ray.remote(num_cpus=1)
def busy(): time.sleep(600)
waiting = [busy.remote(), busy.remote(), infeasible.remote(), infeasible.remote()]
group = ray.util.placement_group([{"CPU": 1}] * 3)
time.sleep(600)
"""
    cluster = Cluster(bench, workers=1, then=then)
    gpus = 'no node has what a task or an actor asks for: {"CPU": 1, "GPU": 8}; the node with most has {"CPU": 1, "GPU": 0}'
    group = 'a placement group asks for 3 bundles of {"CPU": 1}; all nodes together can hold 1'
    bench.wait_for(lambda: f"muster: {gpus}" in bench.control_plane.of("head-0").texts())
    bench.wait_for(lambda: f"muster: {group}" in bench.control_plane.of("head-0").texts())
    for agent in cluster.agents:
        agent.send_signal(signal.SIGTERM)
    text = cluster.ended().texts()
    assert "children []" in text
    assert not any("Warning" in line for line in text), text
    assert [line for line in text if line.startswith("muster: ")] == [f"muster: {group}", f"muster: {gpus}"]
    assert bench.carriers() == []


@SOAK
def test_two_clusters_on_one_machine_never_meet(bench: Bench, tmp_path: Path, pyz: Path) -> None:
    plane = FakeControlPlane()
    plane.up()
    other = Bench(tmp_path / "other", pyz=pyz, control_plane=plane)
    try:
        clusters = Cluster(bench, workers=1), Cluster(other, workers=1)
        for cluster in clusters:
            text = cluster.ended().texts()
            assert cluster.code == 0, text
            assert "nodes 2 cpus 1.0" in text
            assert any(line.startswith("ran on") and cluster.bench.mark in line for line in text), text
    finally:
        assert other.close() == []
        plane.down()


def test_a_missing_ray_is_named(bench: Bench, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    folder = bench.replica(["true"], role="head", framework="ray", processes=0, env={"PATH": "/usr/bin:/bin"})
    bench.start(folder, python=str(tmp_path / "bare/bin/python")).wait(PATIENCE_SECONDS)
    (end,) = bench.control_plane.of("head-0").kind("replica", state="failed")
    assert end["exit_code"] == 127 and "Ray is not installed here" in end["reason"]


def test_a_worker_waits_for_its_head_and_can_be_stopped_meanwhile(bench: Bench) -> None:
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "RAY_ADDRESS": f"127.0.0.1:{free_port()}"}
    agent = bench.start(bench.replica(START, framework="ray", processes=0, env=env))
    bench.wait_for(lambda: bench.status().get("state") == "running")
    agent.send_signal(signal.SIGTERM)
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["state"] in ENDED


@SOAK
def test_a_process_that_ray_gives_a_rank_is_a_rank_of_its_replica(bench: Bench) -> None:
    """Ray Train does what Member does: it sets these variables in an actor's process that already runs."""
    then = """
@ray.remote(num_cpus=1)
class Member:
    def begin(self, rank):
        print("no rank yet", flush=True)
        os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE="2")
        while not os.readlink("/proc/self/fd/2").startswith("pipe:"):
            time.sleep(0.02)
    def train(self, rank):
        import muster
        print("rank", rank, "of", os.environ["MUSTER_REPLICA"], flush=True)
        muster.report(step=3, loss=0.5)
        if rank:
            import traceback
            try:
                raise ValueError("label 17")
            except ValueError:
                traceback.print_exc()
members = [Member.remote() for _ in range(2)]
ray.get([member.begin.remote(rank) for rank, member in enumerate(members)])
ray.get([member.train.remote(rank) for rank, member in enumerate(members)])
for member in members:
    ray.kill(member)
time.sleep(1)
"""
    cluster = Cluster(bench, workers=2, then=then)
    text = cluster.ended().texts()
    assert cluster.code == 0, text
    both = [bench.control_plane.of(f"worker-{index}") for index in range(2)]
    for rank in range(2):
        (received,) = [one for one in both if one.kind("rank", rank=rank)]
        assert received.texts(rank)[0].startswith(f"rank {rank} of worker-"), received.lines
        assert "no rank yet" in received.texts(-1) and "no rank yet" not in received.texts(rank)
        assert [point[1:] for one in received.kind("metrics", rank=rank) for point in one["points"]] == [
            [3, {"loss": 0.5}]
        ]
        assert [one["state"] for one in received.kind("rank", rank=rank)] == [
            "running",
            "failed" if rank else "succeeded",
        ]
        assert received.kind("rank", rank=rank, state="running")[0]["pid"] > 0
    assert "ValueError: label 17" in received.end_of(1)["error"]["traceback"]
