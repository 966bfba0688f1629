"""Two replicas of two ranks on the loopback interface: real torchrun and gloo, or what starts ranks alike without torch."""

import os
import shlex
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded.ports import free_port
from jobs.frameworks import torchrun
from tests.process.agent.bench import ENDED, Bench, torch_env
from tests.support import fake_torchrun
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS

FAKE = (sys.executable, str(Path(fake_torchrun.__file__)))
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
import muster
dist.init_process_group("gloo")
rank = dist.get_rank()
print("rank", rank, "of", dist.get_world_size(), flush=True)
for step in range(int(sys.argv[1])):
    if rank == int(sys.argv[2]) and step == 3:
        raise RuntimeError("boom")
    total = torch.ones(1)
    dist.all_reduce(total)
    muster.report(step=step, total=total)
dist.destroy_process_group()
"""


# Says the same without torch, whose import costs 2.5 CPU seconds in each rank.
PRINTS = """
import os, muster
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
for step in range(5):
    muster.report(step=step, total=4.0)
"""


SOAK = pytest.mark.soak(guards=("agent/output", "agent/ranks"))


def start_four(bench: Bench, *arguments: str, launcher: tuple[str, ...] = ("torchrun",), script: str = TRAIN) -> None:
    port = free_port()
    for index in range(2):
        folder = bench.replica(
            [*launcher, "train.py", *arguments], index=index, files={"train.py": script}, processes=2,
            env=torch_env(index, port=port), hold_port=port if index == 0 else None,
        )  # fmt: skip
        bench.start(folder)


def wait_ended(bench: Bench, *indices: int) -> None:
    for index in indices or (0, 1):
        bench.wait_for(lambda index=index: bench.status(index).get("state") in ENDED)
        bench.agents[index].wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("launcher", "script"),
    [
        pytest.param(("torchrun",), TRAIN, marks=pytest.mark.ci),
        pytest.param((sys.executable, "-m", "torch.distributed.launch", "--use_env"), PRINTS, marks=pytest.mark.full),
    ],
    ids=["torchrun", "torch.distributed.launch"],
)
def test_four_ranks_train_and_are_reported_separately(
    bench: Bench, control_plane: FakeControlPlane, launcher: tuple[str, ...], script: str
) -> None:
    start_four(bench, "5", "-1", launcher=launcher, script=script)
    wait_ended(bench)
    for rank in range(4):
        received = control_plane.of(f"worker-{rank // 2}")
        assert received.texts(rank) == [f"rank {rank} of 4"]
        assert [one["state"] for one in received.kind("rank", rank=rank)] == ["running", "succeeded"]
        points = [point for item in received.kind("metrics", rank=rank) for point in item["points"]]
        assert [(step, values) for _, step, values in points] == [(step, {"total": 4.0}) for step in range(5)]
    assert [bench.status(index)["state"] for index in (0, 1)] == ["succeeded", "succeeded"]


def venv(place: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)


def conda_prefix(place: Path) -> None:
    """Make an interpreter with a library folder of its own, as conda does: its files, without conda's records."""
    version, base = sysconfig.get_python_version(), Path(sys.base_prefix)
    (place / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), place / "bin/python")
    (place / "lib" / f"python{version}").mkdir(parents=True)
    standard = base / "lib" / f"python{version}"
    for one in [*(base / "lib").iterdir(), *standard.iterdir()]:
        if one != standard and one.name not in ("site-packages", "dist-packages"):
            (place / one.relative_to(base)).symlink_to(one)
    (place / "lib" / f"python{version}" / "site-packages").mkdir()


@pytest.mark.parametrize("environment", [venv, conda_prefix])
@pytest.mark.full
def test_ranks_run_in_the_environment_whose_python_the_command_names(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path, environment: Callable[[Path], None]
) -> None:
    """docs/environments.md: with packages of its own; torch comes from the environment of the tests."""
    environment(place := tmp_path / "environment")
    packages = place / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "only_here.py").write_text("NAME = 'only here'\n")
    (packages / "torch.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    command = torchrun.wrap([f"{place}/bin/python", "-O", "train.py"])
    script = "import only_here, sys, torch\nprint(only_here.NAME, sys.prefix, sys.flags.optimize, flush=True)\n"
    port = free_port()
    bench.start(
        bench.replica(
            [*command], files={"train.py": script}, processes=2, hold_port=port, env=torch_env(0, nodes=1, port=port)
        )
    ).wait(PATIENCE_SECONDS)
    assert bench.status()["state"] == "succeeded"
    assert [control_plane.of().texts(rank) for rank in range(2)] == [[f"only here {place} 1"]] * 2


def test_a_shell_that_starts_more_ranks_than_the_job_has_reports_them_all(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    script = "import os\nprint('rank', os.environ['RANK'], flush=True)\nif os.environ['RANK'] == '1': raise ValueError('label 17')"
    env = torch_env(0, nodes=1, per_node=1, port=free_port())
    received = bench.run(
        ["bash", "-c", shlex.join([*FAKE, "--nproc_per_node=2", "x.py"])], files={"x.py": script}, env=env
    )
    assert received.texts(0)[:1] in (["rank 0"], [])  # it may be stopped before it prints
    assert received.texts(1)[0] == "rank 1" and received.texts(1)[-1].endswith("ValueError: label 17")
    assert received.end_of(1)["exit_code"] == 1
    assert received.kind("rank", rank=1, state="running")[0]["local_world_size"] == 2


def first_failing(control_plane: FakeControlPlane) -> int:
    """Return the rank as the control plane decides: the earliest end that was neither requested nor a lost connection."""
    ends = [control_plane.of(f"worker-{rank // 2}").end_of(rank) for rank in range(4)]
    failed = [one for one in ends if one["state"] == "failed" and not one["is_stopped"]]
    own = [one for one in failed if not one["is_connection_error"]] or failed
    return min(own, key=lambda one: one["at"])["rank"]


# Loses its connection when rank 3 is gone, as gloo does.
LOSES = """
import os, sys, time
rank = int(os.environ["RANK"])
place = os.environ["MEET"]
open(f"{place}/here-{rank}", "w")
while not all(os.path.exists(f"{place}/here-{one}") for one in range(4)):
    time.sleep(0.02)
if rank == 3:
    open(f"{place}/pid", "w").write(str(os.getpid()))
    raise RuntimeError("boom")
def is_there():
    with open(f"{place}/pid") as file:
        return os.path.exists("/proc/" + file.read())
while not os.path.exists(f"{place}/pid") or is_there():
    time.sleep(0.02)
raise RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3244")
"""


def test_the_rank_that_raised_is_told_from_those_that_lost_their_connection(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    for index in range(2):
        env = {**torch_env(index, port=free_port()), "MEET": str(tmp_path)}
        folder = bench.replica([*FAKE, "x.py"], index=index, files={"x.py": LOSES}, processes=2, env=env)
        bench.start(folder)
    wait_ended(bench)
    assert first_failing(control_plane) == 3
    ends = [control_plane.of(f"worker-{rank // 2}").end_of(rank) for rank in range(4)]
    # The first of two to lose its connection may have the other one stopped.
    lost = [one for one in ends[:2] if one["is_connection_error"] and not one["is_stopped"]]
    assert lost and {one["exit_code"] for one in lost} == {1}
    assert (ends[3]["exit_code"], ends[3]["is_connection_error"], ends[3]["is_stopped"]) == (1, False, False)


@pytest.mark.parametrize(
    "repetition", [pytest.param(0, marks=pytest.mark.full), *(pytest.param(number, marks=SOAK) for number in (1, 2))]
)
def test_the_rank_that_raised_is_found_among_the_ranks_it_brought_down(
    bench: Bench, control_plane: FakeControlPlane, repetition: int
) -> None:
    start_four(bench, "1000000", "3")
    wait_ended(bench)
    assert first_failing(control_plane) == 3
    end = control_plane.of("worker-1").end_of(3)
    # Sometimes gloo's threads abort the exiting process: signal 6 instead of exit code 1.
    assert (end["exit_code"], end["signal"]) in [(1, None), (None, signal.SIGABRT)]
    assert (end["is_connection_error"], end["is_stopped"]) == (False, False)
    assert end["error_at"] <= end["at"]


@pytest.mark.full  # with another launcher: test_ranks.py
def test_a_rank_that_ignores_sigterm_is_killed_and_marked_as_stopped(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    script = "import os, signal, time\nif os.environ['RANK'] == '1': signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    env = torch_env(0, nodes=1, port=free_port())
    folder = bench.replica(["torchrun", "train.py"], files={"train.py": script}, env=env, grace_seconds=10, processes=2)
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts(0) == control_plane.of().texts(1) == ["ready"])
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    ends = [control_plane.of().end_of(rank) for rank in (0, 1)]
    assert [one["signal"] for one in ends] == [signal.SIGTERM, signal.SIGKILL]
    assert all(one["is_stopped"] for one in ends)


@pytest.mark.full  # tests/system/stack/test_training.py suspends and resumes it through the whole installation
def test_the_example_saves_when_stopped_and_resumes_from_its_checkpoint(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    script = (Path(__file__).resolve().parents[3] / "examples" / "ddp_digits.py").read_text()
    command = [
        "torchrun",
        "ddp_digits.py",
        "--epochs=5",
        "--batch-size=32",
        "--lr=0.003",
        "--print-every=1",
        "--step-delay",
    ]
    env = torch_env(0, nodes=1, port=free_port())
    # Two separate replicas; an elastic one numbers its ranks by its index, so those of the second are 2 and 3.
    told_more = {"files": {"ddp_digits.py": script}, "env": env, "processes": 2, "is_elastic": True}
    first = bench.replica([*command, "0.2"], grace_seconds=120, **told_more)
    agent = bench.start(first)
    bench.wait_for(lambda: len(control_plane.of().texts(0)) > 3)
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert [control_plane.of().end_of(rank)["exit_code"] for rank in (0, 1)] == [143, 143]
    assert len(list((bench.shared / "checkpoints").glob("step-*.pt"))) == 1
    bench.start(bench.replica([*command, "0"], index=1, **told_more)).wait(PATIENCE_SECONDS)
    told = control_plane.of("worker-1").texts(2)
    assert told[1].startswith("going on from step-") and told[-1].startswith("test accuracy 9")
    points = [point for item in control_plane.of("worker-1").kind("metrics", rank=2) for point in item["points"]]
    assert max(values.get("accuracy", 0) for _, _, values in points) > 0.95


STEPS = """
import socket, sys, time, muster
listening = socket.socket()
if "meets" in sys.argv:
    listening.listen()
muster.report(step=1, loss=0.5)
time.sleep(float(sys.argv[1]))
"""
SOON = {"MUSTER_ALONE_SECONDS": "1"}


def test_ranks_that_take_steps_without_having_met_are_told_of(bench: Bench) -> None:
    folder = bench.replica(
        [*FAKE, "train.py", "3600"], files={"train.py": STEPS}, processes=2, env=torch_env(0, nodes=1, port=free_port())
    )
    bench.start(folder, **SOON)
    received = bench.control_plane.of(folder.name)
    (item,) = bench.wait_for(lambda: received.kind("alone"))
    assert item["ranks"] == [0, 1]


def test_ranks_that_listen_for_others_are_not(bench: Bench) -> None:
    folder = bench.replica(
        [*FAKE, "train.py", "9", "meets"], files={"train.py": STEPS}, processes=2,
        env=torch_env(0, nodes=1, port=free_port()),
    )  # fmt: skip
    bench.start(folder, **SOON).wait(PATIENCE_SECONDS)
    assert bench.status()["state"] == "succeeded" and not bench.control_plane.of(folder.name).kind("alone")


@pytest.mark.full
def test_ranks_with_a_process_group_are_not(bench: Bench) -> None:
    script = TRAIN.replace("dist.destroy", "import time; time.sleep(9)\ndist.destroy")
    folder = bench.replica(
        ["torchrun", "train.py", "5", "-1"], files={"train.py": script}, processes=2,
        env=torch_env(0, nodes=1, port=free_port()),
    )  # fmt: skip
    bench.start(folder, **SOON).wait(PATIENCE_SECONDS)
    received = bench.control_plane.of(folder.name)
    assert bench.status()["state"] == "succeeded" and received.kind("metrics") and not received.kind("alone")
