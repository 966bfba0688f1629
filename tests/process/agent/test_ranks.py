"""Ranks behind the shim, with launchers of a few lines instead of torchrun."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS

# Starts ranks as torchrun does: each in its own session; when one fails, the groups of the others get a signal.
LAUNCHER = """
import os, signal, subprocess, sys, time
ranks = []
def start(rank):
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), TORCHELASTIC_RESTART_COUNT="0")
    return subprocess.Popen([os.environ["PYTHON_EXEC"], "-u", "rank.py"], env=env, start_new_session=True)
def stop(*_):
    for one in ranks:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGTERM)
signal.signal(signal.SIGTERM, stop)
ranks = [start(rank) for rank in range(int(sys.argv[1]))]
while any(one.poll() is None for one in ranks):
    if any(one.poll() for one in ranks):
        stop()
    time.sleep(0.02)
print("codes", [one.returncode for one in ranks], flush=True)
sys.exit(any(one.returncode for one in ranks))
"""


def launch(bench: Bench, script: str, *, ranks: int = 1, wait: bool = True, **told: Any) -> subprocess.Popen[bytes]:
    files = {"launcher.py": LAUNCHER, "rank.py": script}
    folder = bench.replica([sys.executable, "launcher.py", str(ranks)], files=files, processes=ranks, **told)
    agent = bench.start(folder)
    if wait:
        agent.wait(PATIENCE_SECONDS)
    return agent


@pytest.mark.parametrize(
    "ending, code, exit_code, ended_by",
    [
        ("sys.exit(0)", 0, 0, None),
        ("sys.exit(7)", 7, 7, None),
        ("raise ValueError('x')", 1, 1, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11, None, signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, None, signal.SIGKILL),
        ("os.abort()", -6, None, signal.SIGABRT),
    ],
)
def test_the_shim_exits_like_its_rank(
    bench: Bench, control_plane: FakeControlPlane, ending: str, code: int, exit_code: int | None, ended_by: int | None
) -> None:
    launch(bench, f"import os, signal, sys\nprint('out'); print('err', file=sys.stderr)\n{ending}")
    received = control_plane.of()
    assert received.texts(-1) == [f"codes [{code}]"]
    assert {"err", "out"} <= set(received.texts(0))
    end = received.end_of(0)
    assert (end["exit_code"], end["signal"]) == (exit_code, ended_by)
    assert end["state"] == ("succeeded" if code == 0 else "failed")
    assert not end.get("is_stopped")


def test_a_rank_sees_the_same_environment_as_without_a_shim(bench: Bench, control_plane: FakeControlPlane) -> None:
    launch(bench, """
        import os, signal, sys
        print(sys.executable == os.environ["WANTED"], os.getpgrp() == os.getpid(), os.getpgrp() == os.getppid())
        print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, signal.getsignal(signal.SIGINT) == signal.default_int_handler)
        print("PYTHON_EXEC" in os.environ, os.getcwd() == os.environ["PWD_WANTED"], sys.argv)
        print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("SigBlk", "ShdPnd"))])
    """.replace("\n        ", "\n"), env={"WANTED": sys.executable, "PWD_WANTED": str(bench.attempt / "worker-0" / "code")})  # fmt: skip
    zero = "0" * 16
    assert control_plane.of().texts(0) == ["True False True", "True True", "False True ['rank.py']", str([zero, zero])]


def test_a_rank_runs_under_the_launchers_interpreter(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    files = {"launcher.py": LAUNCHER, "rank.py": "import sys; print(sys.prefix)"}
    bench.start(bench.replica([str(tmp_path / "venv/bin/python"), "launcher.py", "1"], files=files)).wait(
        PATIENCE_SECONDS
    )
    assert control_plane.of().texts(0) == [str(tmp_path / "venv")]


def test_a_rank_gets_the_flags_of_the_launchers_interpreter(bench: Bench, control_plane: FakeControlPlane) -> None:
    files = {"launcher.py": LAUNCHER, "rank.py": "import sys; print(sys.flags.optimize, sys.flags.dev_mode)"}
    command = ["python3", "-O", "-X", "dev", "-W", "ignore", "launcher.py", "1"]
    bench.start(bench.replica(command, files=files)).wait(PATIENCE_SECONDS)
    assert control_plane.of().texts(0) == ["1 True"]


def test_a_rank_stopped_for_another_is_not_to_blame(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = """
import os, sys, time
open("here-" + os.environ["RANK"], "w")
while os.environ["RANK"] == "1":
    if os.path.exists("here-0") and os.path.exists("here-2"):
        sys.exit(5)
time.sleep(600)
"""
    launch(bench, script, ranks=3)
    ends = {rank: control_plane.of().end_of(rank) for rank in range(3)}
    assert [ends[rank]["is_stopped"] for rank in range(3)] == [True, False, True]
    assert ends[0]["signal"] == signal.SIGTERM and ends[1]["exit_code"] == 5
    assert ends[1]["at"] < min(ends[0]["at"], ends[2]["at"])


def test_a_rank_that_handles_the_stop_is_marked_as_stopped_too(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\nprint('ready')\ntime.sleep(600)"
    agent = launch(bench, script, wait=False)
    bench.wait_for(lambda: control_plane.of().texts(0) == ["ready"])
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    end = control_plane.of().end_of(0)
    assert (end["exit_code"], end["is_stopped"]) == (3, True)


def test_a_rank_that_ignores_the_stop_is_killed_after_the_grace_period(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\ntime.sleep(600)"
    agent = launch(bench, script, wait=False, grace_seconds=1)
    bench.wait_for(lambda: control_plane.of().texts(0) == ["ready"])
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    end = control_plane.of().end_of(0)
    assert (end["signal"], end["is_stopped"], bench.status()["state"]) == (signal.SIGKILL, True, "failed")


@pytest.mark.parametrize("loader", ["", "subprocess.Popen(['sleep', '600'], start_new_session=True)"])
def test_a_killed_agent_takes_its_ranks_along(bench: Bench, control_plane: FakeControlPlane, loader: str) -> None:
    agent = launch(bench, f"import subprocess, time\n{loader}\nprint('ready')\ntime.sleep(600)", ranks=2, wait=False)
    bench.wait_for(lambda: control_plane.of().texts(0) == control_plane.of().texts(1) == ["ready"])
    assert len(bench.carriers()) >= 5
    os.kill(agent.pid, signal.SIGKILL)
    bench.wait_for(lambda: not bench.carriers())


def test_a_launcher_behind_a_shell_dies_with_its_agent(bench: Bench, control_plane: FakeControlPlane) -> None:
    files = {"launcher.py": LAUNCHER, "rank.py": "import time; print('ready'); time.sleep(600)"}
    agent = bench.start(bench.replica(["sh", "-c", f"{sys.executable} launcher.py 1; true"], files=files))
    bench.wait_for(lambda: control_plane.of().texts(0) == ["ready"])
    os.kill(agent.pid, signal.SIGKILL)
    bench.wait_for(lambda: not bench.carriers())


def test_reports_and_samples_arrive(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = """
import os, subprocess, sys, time, muster
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
def used():
    words = open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
for step in range(18):
    muster.report(step=step, loss=1 / (step + 1), nan=float("nan"), huge=10**400)
    time.sleep(0.25)
while used() < 2:  # others may want the cores too
    time.sleep(0.25)
child.kill()
"""
    launch(bench, script)
    received = control_plane.of()
    points = [point for item in received.kind("metrics", rank=0) for point in item["points"]]
    assert [point[1] for point in points] == list(range(18))
    assert points[1][2] == {"loss": 0.5, "nan": None}
    samples = received.kind("sample", rank=0)
    assert samples[-1]["rss_bytes"] > 10_000_000 and samples[0]["gpu"] is None
    assert max(one["cpu"] or 0 for one in samples) > 0.05  # that of the child: the rank itself sleeps


@pytest.mark.parametrize("repetition", range(3))
def test_output_and_metrics_of_short_ranks_are_attributed_correctly(
    bench: Bench, control_plane: FakeControlPlane, repetition: int
) -> None:
    launch(bench, "import muster\nprint('only this')\nmuster.report(step=1, x=1)", ranks=4)
    for rank in range(4):
        assert control_plane.of().texts(rank) == ["only this"]
        assert [item["points"][0][1:] for item in control_plane.of().kind("metrics", rank=rank)] == [[1, {"x": 1}]]


def test_a_report_without_a_shim_announces_its_rank(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = "import os, muster, time\nos.environ.update(RANK='2', LOCAL_RANK='0')\nmuster.report(step=1, x=2)\ntime.sleep(0.3)"
    bench.run([sys.executable, "-c", script], processes=3)
    received = control_plane.of()
    assert [one["state"] for one in received.kind("rank", rank=2)] == ["running", "succeeded"]
    assert received.kind("metrics", rank=2)[0]["points"][0][1:] == [1, {"x": 2}]


@pytest.mark.parametrize(("is_elastic", "expected"), [(True, 3), (False, 1)])
def test_a_rank_of_an_elastic_job_is_numbered_by_its_replica_index(
    bench: Bench, control_plane: FakeControlPlane, is_elastic: bool, expected: int
) -> None:
    """torchrun may number it 1 of 4 now and 0 of 2 a minute later; its lines, metrics and row keep one number."""
    script = "import muster\nprint('here')\nmuster.report(step=1, x=2)"
    index = 1 if is_elastic else 0
    launch(bench, script, ranks=2, index=index, is_elastic=is_elastic, env={"WORLD_SIZE": "4"})
    received = control_plane.of(f"worker-{index}")
    assert received.texts(expected) == ["here"]
    assert received.kind("metrics", rank=expected)[0]["points"][0][1:] == [1, {"x": 2}]
    running, ended = received.kind("rank", rank=expected)
    assert (running["local_rank"], ended["state"]) == (1, "succeeded")
    told = {"world_rank": 1, "world_size": 4} if is_elastic else {}
    assert {name: running[name] for name in running if name.startswith("world")} == told


def test_a_report_without_a_shim_is_numbered_by_replica_index_too(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    script = "import os, muster, time\nos.environ.update(RANK='0', LOCAL_RANK='1')\nmuster.report(step=1, x=2)\ntime.sleep(0.3)"
    bench.run([sys.executable, "-c", script], index=2, processes=2, is_elastic=True)
    received = control_plane.of("worker-2")
    assert [one["state"] for one in received.kind("rank", rank=5)] == ["running", "succeeded"]
    assert received.kind("metrics", rank=5)[0]["points"][0][1:] == [1, {"x": 2}]


@pytest.mark.parametrize("shell", [False, True])
def test_a_killed_launcher_is_the_cause_and_none_of_its_ranks_is(
    bench: Bench, control_plane: FakeControlPlane, shell: bool
) -> None:
    script = "import os\nopen('launcher', 'w').write(str(os.getpid()))\n" + LAUNCHER
    files = {"launcher.py": script, "rank.py": "import time; print('ready', flush=True); time.sleep(600)"}
    command = [sys.executable, "launcher.py", "2"]
    if shell:
        command = ["sh", "-c", f"{sys.executable} launcher.py 2; exit 9"]
    folder = bench.replica(command, files=files, processes=2)
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts(0) == control_plane.of().texts(1) == ["ready"])
    os.kill(int((folder / "code" / "launcher").read_text()), signal.SIGKILL)
    agent.wait(PATIENCE_SECONDS)
    ends = [control_plane.of().end_of(rank) for rank in range(2)]
    assert [(one["signal"], one["is_stopped"]) for one in ends] == [(signal.SIGKILL, True)] * 2
    assert (bench.status()["signal"], bench.status()["exit_code"]) == ((None, 9) if shell else (signal.SIGKILL, None))


def test_a_process_that_only_reports_is_not_blamed_for_its_killed_launcher(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    child = "import os, muster, time\nos.environ.update(RANK='0')\nmuster.report(step=1, x=2)\nprint('ready', flush=True)\ntime.sleep(600)"
    script = f"import os, subprocess, sys\nopen('launcher', 'w').write(str(os.getpid()))\nsubprocess.run([sys.executable, '-c', {child!r}])"
    folder = bench.replica([sys.executable, "start.py"], files={"start.py": script})
    agent = bench.start(folder)
    bench.wait_for(lambda: control_plane.of().texts(-1) == ["ready"] and control_plane.of().kind("rank", rank=0))
    os.kill(int((folder / "code" / "launcher").read_text()), signal.SIGKILL)
    agent.wait(PATIENCE_SECONDS)
    end = control_plane.of().end_of(0)
    assert (end["signal"], end["is_stopped"]) == (signal.SIGKILL, True)


def test_a_killed_command_that_reports_itself_is_to_blame(bench: Bench, control_plane: FakeControlPlane) -> None:
    script = "import os, muster, signal\nos.environ.update(RANK='0')\nmuster.report(step=1, x=2)\nos.kill(os.getpid(), signal.SIGKILL)"
    received = bench.run([sys.executable, "-c", script])
    assert (received.end_of(0)["signal"], received.end_of(0)["is_stopped"]) == (signal.SIGKILL, False)


def test_a_suspended_launcher_receives_the_stop_at_once(bench: Bench, control_plane: FakeControlPlane) -> None:
    """Without SIGCONT it would get the signal only on resuming, and be killed at the end of its grace period."""
    script = "import os, signal\nprint('ready', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"
    agent = bench.start(bench.replica([sys.executable, "-c", script], grace_seconds=3600))
    bench.wait_for(lambda: control_plane.of().texts(-1) == ["ready"])
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert (bench.status()["state"], bench.status()["signal"]) == ("failed", signal.SIGTERM)


def test_a_launcher_after_another_one_counts_as_a_restart_of_its_ranks(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    files = {"launcher.py": LAUNCHER, "rank.py": "import sys; sys.exit(0)"}
    again = f"{sys.executable} launcher.py 1; {sys.executable} launcher.py 1"
    received = bench.run(["sh", "-c", again], files=files)
    told = [(one["state"], one["restart"]) for one in received.kind("rank", rank=0)]
    assert told == [("running", 0), ("succeeded", 0), ("running", 1), ("succeeded", 1)]


def test_ranks_that_nobody_planned_are_sent_like_all_others(bench: Bench, control_plane: FakeControlPlane) -> None:
    """A command starts three ranks in a job of one process: the control plane decides what to do with two of them."""
    script = """
import os, muster, sys, time
rank = int(os.environ["RANK"])
muster.report(step=1, x=rank)
print("rank", rank, flush=True)
open(f"here-{rank}", "w")
while not all(os.path.exists(f"here-{one}") for one in range(3)):
    time.sleep(0.02)
if rank == 2:
    sys.exit(7)
time.sleep(600)
"""
    folder = bench.replica(
        [sys.executable, "launcher.py", "3"], files={"launcher.py": LAUNCHER, "rank.py": script}, processes=1,
        env={"LOCAL_WORLD_SIZE": "3"},
    )  # fmt: skip
    bench.start(folder).wait(PATIENCE_SECONDS)
    received = control_plane.of()
    assert [received.texts(rank) for rank in range(3)] == [["rank 0"], ["rank 1"], ["rank 2"]]
    assert {one["rank"] for one in received.kind("metrics")} == {0, 1, 2}
    assert {one["rank"] for one in received.kind("sample")} <= {0, 1, 2}
    assert next(one["state"] for one in received.kind("rank", rank=0)) == "running"
    sizes = {one["rank"]: one.get("local_world_size") for one in received.kind("rank", state="running")}
    assert sizes == {0: None, 1: 3, 2: 3}
    assert (received.end_of(2)["exit_code"], received.end_of(0)["is_stopped"]) == (7, True)


@pytest.mark.parametrize("number", ["-1", "-7", "77", "99999999999999999999"])
def test_a_helper_that_reports_an_odd_rank_is_kept_apart(
    bench: Bench, control_plane: FakeControlPlane, number: str
) -> None:
    helper = f"import os, muster\nos.environ.update(RANK='{number}')\nmuster.report(step=1, x=9)"
    script = f"import subprocess, sys, muster\nmuster.report(step=1, x=2)\nsubprocess.run([sys.executable, '-c', {helper!r}])\nprint('done')"
    launch(bench, script)
    received = control_plane.of()
    assert received.texts(0) == ["done"]
    assert [one["state"] for one in received.kind("rank", rank=0)] == ["running", "succeeded"]
    assert {one["rank"] for one in received.kind("rank")} <= {0, 77}
    points = [(one["rank"], point[2]) for one in received.kind("metrics") for point in one["points"]]
    assert sorted(points) == [(0, {"x": 2}), *([(77, {"x": 9})] if number == "77" else [])]


def test_the_shim_without_an_agent_runs_the_interpreter(pyz: Path, tmp_path: Path) -> None:
    for address in ({}, {"MUSTER_REPORT": "@muster-nobody"}, {"MUSTER_REPORT": str(tmp_path / "none")}):
        env = {"PATH": os.environ["PATH"], "RANK": "0", **address}
        words = [sys.executable, "-I", "-S", "-E", str(pyz), "--shim", "-c", "import sys; print('here'); sys.exit(4)"]
        ended = subprocess.run(words, env=env, capture_output=True, timeout=PATIENCE_SECONDS)
        assert (ended.returncode, ended.stdout) == (4, b"here\n")
