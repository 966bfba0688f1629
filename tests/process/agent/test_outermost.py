"""The replica's command is not the launcher of its ranks: a pipe, a shell's list, a script around torchrun."""

import shlex
import signal
import sys
from pathlib import Path

import pytest

from embedded.ports import free_port
from tests.process.agent.bench import Bench, torch_env
from tests.support import fake_torchrun
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS

TORCHRUN = shlex.join([sys.executable, str(Path(fake_torchrun.__file__))])
SCRIPT = """
import os, sys, time
rank, how = int(os.environ["RANK"]), sys.argv[1]
print("rank", rank, flush=True)
if how == "fails" and rank == 1:
    sys.exit(3)
if how == "stays":
    open("here", "w").close()
    time.sleep(600)
if how == "once" and not os.path.exists(f"been-{rank}"):
    open(f"been-{rank}", "w").close()
    sys.exit(4 if rank == 1 else 0)
"""
SAVES = """
import os, signal, sys, time
def stop(*_):
    time.sleep(1.5)
    open("saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""
EXECUTED = "while [ /proc/$!/exe -ef /proc/$$/exe ]; do :; done"  # until the fork is no longer the shell itself
FAILED = "rank 1 failed, although the command ended with 0"
LAUNCHING = "torchrun was still starting its ranks when the command ended with 0"
LEFT = "rank 0 was still running when the command ended with 0"


def ended(bench: Bench, line: str, *, framework: str = "torchrun") -> dict:
    env = torch_env(0, nodes=1, port=free_port())
    files = {"train.py": SCRIPT, "ok.py": "print('no torchrun here')"}
    bench.run(["bash", "-c", line], files=files, env=env, processes=2, framework=framework)
    status = bench.status()
    return {name: status.get(name) for name in ("state", "exit_code", "reason")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"{TORCHRUN} train.py fails | cat", FAILED),
        (f"{TORCHRUN} train.py fails || true", FAILED),
        (f"{TORCHRUN} train.py fails; echo done", FAILED),
        (f"trap 'exit 0' EXIT; {TORCHRUN} train.py fails", FAILED),
        (f"{TORCHRUN} train.py ok; {TORCHRUN} train.py fails; true", FAILED),
        (f"{TORCHRUN} train.py stays & while [ ! -e here ]; do sleep 0.05; done", LEFT),
        (f"nohup {TORCHRUN} train.py stays > train.log 2>&1 & {EXECUTED}; echo started", LEFT),
        (f"nohup setsid {TORCHRUN} train.py stays >/dev/null 2>&1 & while [ ! -e here ]; do sleep 0.05; done", LEFT),
    ],
)
def test_a_command_that_hides_how_its_ranks_ended_has_failed(bench, line, reason):
    end = ended(bench, line)
    assert (end["state"], end["exit_code"]) == ("failed", 1)
    assert end["reason"] in (reason, reason.replace("rank 0", "rank 1"), *([LAUNCHING] if reason == LEFT else []))
    assert bench.agents[0].returncode == 1, "the exit code of the pod's container"


@pytest.mark.parametrize(
    "line",
    [
        f"{TORCHRUN} train.py ok | cat",
        f"{TORCHRUN} train.py once || {TORCHRUN} train.py once",
        f"until {TORCHRUN} train.py once; do echo again; done",
        f"{TORCHRUN} train.py ok; sleep 600 & exit 0",
    ],
)
def test_a_command_whose_last_ranks_succeeded_has_succeeded(bench, line):
    assert ended(bench, line) == {"state": "succeeded", "exit_code": 0, "reason": ""}


@pytest.mark.parametrize(
    ("line", "framework", "reason"),
    [
        (f"{sys.executable} ok.py", "torchrun", "no rank was started: the command ended with 0 without torchrun"),
        ("true", "torchrun", "no rank was started: the command ended with 0 without torchrun"),
        ("true", "of a newer server", ""),
    ],
)
def test_a_command_that_starts_no_rank_succeeds_with_a_note(bench, line, framework, reason):
    assert ended(bench, line, framework=framework) == {"state": "succeeded", "exit_code": 0, "reason": reason}


@pytest.mark.full  # with a stand-in for torchrun above
def test_a_real_torchrun_that_restarts_its_ranks_in_place_has_succeeded(bench: Bench) -> None:
    script = """
import os, pathlib
mark = pathlib.Path("tried")
if os.environ["RANK"] == "1" and not mark.exists():
    mark.touch()
    raise RuntimeError("the first time")
"""
    env = torch_env(0, nodes=1, port=free_port())
    bench.run(
        ["bash", "-c", "torchrun --max-restarts=2 train.py; echo after"],
        files={"train.py": script},
        env=env,
        processes=2,
    )
    assert (bench.status()["state"], bench.status()["reason"]) == ("succeeded", "")


@pytest.mark.parametrize(
    ("line", "framework"),
    [
        (f"{TORCHRUN} --nproc_per_node=1 save.py; echo after", "torchrun"),
        (f"bash -c '{TORCHRUN} --nproc_per_node=1 save.py; true'", "torchrun"),
        (f"{sys.executable} save.py; echo after", "plain"),
        (f"setsid {sys.executable} save.py; echo after", "plain"),
        (f"set -m; {sys.executable} save.py & wait", "plain"),
        (f"setsid {TORCHRUN} --nproc_per_node=1 save.py & wait", "torchrun"),
    ],
)
def test_after_a_stop_the_trainer_has_its_grace_although_the_shell_ends_at_once(
    bench: Bench, control_plane: FakeControlPlane, line, framework
):
    env = torch_env(0, nodes=1, port=free_port())
    folder = bench.replica(
        ["bash", "-c", line], files={"save.py": SAVES}, env=env, framework=framework, grace_seconds=60,
        is_rank=framework == "plain",
    )  # fmt: skip
    agent = bench.start(folder)
    bench.wait_for(lambda: "ready" in control_plane.of().texts(0) + control_plane.of().texts(-1))
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert (folder / "code/saved").exists()
    assert bench.status()["state"] == "failed" and bench.status()["signal"] == signal.SIGTERM
    assert bench.carriers() == []


def test_a_stop_leaves_the_loaders_of_data_to_their_trainer(bench: Bench, control_plane: FakeControlPlane) -> None:
    """torch's DataLoader: a worker that is stopped beside its trainer makes the trainer fail before it has saved."""
    script = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: (print("worker stopped", flush=True), os._exit(1)))
    open("/proc/self/comm", "w").write("pt_data_worker")
    os.close(0)
    while os.getppid() != 1 and os.path.exists(f"/proc/{sys.argv[1]}"): time.sleep(0.05)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print("saved", flush=True), os._exit(0)))
print("ready", flush=True)
time.sleep(600)
"""
    line = f"exec {sys.executable} train.py $$"
    agent = bench.start(
        bench.replica(
            ["bash", "-c", line], files={"train.py": script}, framework="plain", grace_seconds=60, is_rank=True
        )
    )
    bench.wait_for(lambda: "ready" in control_plane.of().texts(0))
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert control_plane.of().texts(0) == ["ready", "saved"]


@pytest.mark.parametrize(
    ("line", "texts"),
    [("./prog.sh a 'b c'", ["rank 1 prints a b c"]), ("sh -c 'echo $RANK'", ["1"]), ("./gone", ["cannot start ./gone: No such file or directory"])],
)  # fmt: skip
def test_a_rank_that_is_no_python_is_seen_by_itself(bench: Bench, line: str, texts: list[str]) -> None:
    files = {"prog.sh": '#!/bin/sh\nexec echo rank $RANK prints "$@"\n'}
    env = {**torch_env(0, nodes=1, port=free_port()), "MUSTER_NO_PYTHON": "1"}
    folder = bench.replica(["bash", "-c", f"chmod +x prog.sh; {TORCHRUN} {line}"], files=files, env=env, processes=2)
    bench.start(folder).wait(PATIENCE_SECONDS)
    received = bench.control_plane.of(folder.name)
    assert texts in (received.texts(0), received.texts(1)), "one that fails may end the other before it begins"


def test_what_a_script_prints_in_place_of_the_one_planned_rank_becomes_series(bench: Bench) -> None:
    line = f"{sys.executable} -c 'print(\"step 3/10 loss 0.6931471824645996\")'; {TORCHRUN} --nproc_per_node=1 train.py"
    script = "import os; print('step 4/10 loss 0.5')"
    received = bench.run(["bash", "-c", line], files={"train.py": script}, env=torch_env(0, nodes=1, port=free_port()))
    points = [point[1:] for item in received.kind("metrics", rank=0) for point in item["points"]]
    assert points == [
        [3, {"printed/loss": 0.6931471824645996, "total_steps": 10}],
        [4, {"printed/loss": 0.5, "total_steps": 10}],
    ]
