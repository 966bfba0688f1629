"""One replica with plain commands: what is reported of its start and its end."""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from agent.linux import is_alive
from agent.output.checkpoints import LAST_SECONDS
from embedded.ports import free_port
from tests.process.agent.bench import ENDED, Bench, torch_env
from tests.support import fake_torchrun
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS


def test_output_and_success_arrive(bench: Bench, control_plane: FakeControlPlane) -> None:
    received = bench.run(["sh", "-c", "echo one; echo two >&2; echo three"])
    assert sorted(received.texts()) == ["one", "three", "two"]
    assert [one["state"] for one in received.kind("replica")] == ["running", "succeeded"]
    status = bench.status()
    assert (status["state"], status["exit_code"], status["is_drained"]) == ("succeeded", 0, True)
    assert status["started_at"] <= status["at"]


@pytest.mark.parametrize(
    "command, exit_code, ended_by",
    [
        (["sh", "-c", "exit 3"], 3, None),
        (["sh", "-c", "kill -SEGV $$"], None, signal.SIGSEGV),
        (["false"], 1, None),
    ],
)
def test_exit_codes_and_signals_are_reported(
    bench: Bench, command: list[str], exit_code: int | None, ended_by: int | None
) -> None:
    received = bench.run(command)
    status = bench.status()
    assert (status["state"], status["exit_code"], status["signal"]) == ("failed", exit_code, ended_by)
    told = received.kind("replica", state="failed")[0]
    assert (told["exit_code"], told["signal"]) == (exit_code, ended_by)


def test_paths_of_the_user_come_first_and_are_extended(bench: Bench) -> None:
    env = {"PATH": "/bin:/usr/bin", "PYTHONPATH": "/their/modules", "MUSTER_TOKEN": "secret"}
    received = bench.run(["env"], env=env)
    told = dict(line.split("=", 1) for line in received.texts() if "=" in line)
    assert told["PATH"].startswith("/bin:/usr/bin:")
    assert told["PYTHONPATH"] == f"/their/modules:{bench.pyz}"
    assert (told["MUSTER_JOB"], told["MUSTER_ATTEMPT"], told["MUSTER_REPLICA"]) == ("42", "1", "worker-0")
    assert told["MUSTER_CHECKPOINTS"] == f"{bench.shared}/checkpoints"
    assert "MUSTER_TOKEN" not in told and "worker-0" not in told.get("TOKEN", "")


@pytest.mark.parametrize(
    "command, exit_code, reason",
    [
        (["nosuch"], 127, "command not found: nosuch"),
        (["train.py"], 127, "command not found: train.py; the workspace has train.py: start it with python train.py or torchrun train.py"),
        (["trian.py"], 127, "command not found: trian.py; did you mean train.py?"),
        (["./train.py"], 126, "not executable: ./train.py; chmod +x it, or name its interpreter"),
        (["torchrun", "--nnodes", "1", "--standalone", "nosuch.py"], 2, "no such file in the workspace: nosuch.py"),
        (["python", "trian.py"], 2, "no such file in the workspace: trian.py; did you mean train.py?"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_start_gives_a_reason(
    bench: Bench, command: list[str], exit_code: int, reason: str
) -> None:
    received = bench.run(command, files={"train.py": "print('never')"})
    status = bench.status()
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", exit_code, reason)
    assert received.lines == {} and received.kind("replica")[0]["reason"] == reason


def test_files_of_secrets_are_there_for_the_command_and_its_user_alone(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "gcp" / "key.json"
    files = {"train.py": f"import os; print(open({str(path)!r}).read(), oct(os.stat({str(path)!r}).st_mode))"}
    received = bench.run([sys.executable, "train.py"], files=files, secret_files={str(path): "{}"})
    assert received.texts() == ["{} 0o100600"]


def test_the_first_replica_says_how_full_the_volumes_are_that_it_mounts(bench: Bench, tmp_path: Path) -> None:
    volume = tmp_path / "data-sets"
    volume.mkdir()
    (volume / "new").write_text("x")
    os.utime(volume / "new", (1_800_000_000, 1_800_000_000))
    code = {"train.py": "import time\ntime.sleep(4)"}
    received = bench.run([sys.executable, "train.py"], files=code, env={"MUSTER_VOLUME_DATA_SETS": str(volume)})
    (said,) = [one["volumes"] for one in received.kind("volumes")]
    about = os.statvfs(volume)
    assert said["data-sets"]["total"] == about.f_blocks * about.f_frsize
    assert 0 < said["data-sets"]["free"] <= said["data-sets"]["total"]
    assert said["data-sets"]["written_at"] == 1_800_000_000


SAVES = """
import os, pathlib
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINTS"])
for step in (1, 2, 3):
    (folder / f"step-{step}").mkdir(parents=True)
    (folder / f"step-{step}" / "model.pt").write_text("x" * step)
(folder / "step-1" / "model.pt").unlink()
(folder / "step-1").rmdir()
(folder / "step-4.tmp").mkdir()
"""


def test_the_first_replica_lists_the_checkpoints_once_more_at_its_end(bench: Bench, tmp_path: Path) -> None:
    before = int(time.time())
    received = bench.run([sys.executable, "train.py"], files={"train.py": SAVES}, shared=str(tmp_path / "shared"))
    (said,) = received.kind("checkpoints")
    assert [(one["name"], one["step"], one["bytes"]) for one in said["checkpoints"]] == [
        ("step-2", 2, 2),
        ("step-3", 3, 3),
    ]
    assert all(before <= one["written_at"] <= said["at"] for one in said["checkpoints"])
    second = bench.run([sys.executable, "train.py"], files={"train.py": ""}, shared=str(tmp_path / "shared"), index=1)
    assert second.kind("checkpoints") == []


HANGS = """
import os, threading
real = os.scandir
def scandir(path="."):
    if str(path).endswith("/checkpoints"):
        threading.Event().wait()
    return real(path)
os.scandir = scandir
"""


def test_checkpoints_that_cannot_be_looked_at_do_not_hold_up_the_end(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    (bench.shared / "checkpoints" / "step-1").mkdir(parents=True)
    folder = bench.replica(["true"])
    began = time.monotonic()
    bench.start(folder, PYTHONPATH=str(tmp_path)).wait(PATIENCE_SECONDS)
    took = time.monotonic() - began
    assert (bench.status()["state"], bench.status()["is_drained"]) == ("succeeded", True)
    assert bench.control_plane.of("worker-0").kind("checkpoints") == []
    assert took >= LAST_SECONDS, "the folder did not hang"


@pytest.mark.parametrize("absolute", [False, True])
def test_a_command_starts_in_its_working_directory(bench: Bench, tmp_path: Path, absolute: bool) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "train.py").write_text("print('of the image')")
    files = {"train.py": "print('beside it')", "examples/train.py": "print('of the code')"}
    where = str(tmp_path / "image") if absolute else "examples"
    received = bench.run([sys.executable, "train.py"], files=files, working_dir=where)
    assert received.texts() == ["of the image" if absolute else "of the code"]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("exmaples", "no such folder in the workspace: exmaples; correct working_dir"),
        ("/no/such", "no such folder on this machine or in this image: /no/such; correct working_dir"),
        ("train.py", "no such folder in the workspace: train.py; correct working_dir"),
    ],
)
def test_a_working_directory_that_is_not_there_gives_a_reason(bench: Bench, where: str, reason: str) -> None:
    bench.run(["true"], files={"train.py": ""}, working_dir=where)
    status = bench.status()
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", 2, reason)


def test_a_sealed_attempt_starts_nothing(bench: Bench, tmp_path: Path) -> None:
    folder = bench.replica(["touch", str(tmp_path / "started")])
    (bench.attempt / "sealed").touch()
    assert bench.start(folder).wait(PATIENCE_SECONDS) == 0
    assert bench.status() == {} and not (tmp_path / "started").exists()


def test_an_attempt_sealed_while_the_workspace_is_fetched_starts_nothing(
    bench: Bench, control_plane: FakeControlPlane, tmp_path: Path
) -> None:
    control_plane.refuse = 503
    folder = bench.replica(["touch", str(tmp_path / "started")], wants_workspace=True)
    agent = bench.start(folder)
    bench.wait_for(lambda: bench.status().get("state") == "starting")
    with open(bench.attempt / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (bench.attempt / "sealed").touch()
    control_plane.refuse = 0
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["reason"] == "the attempt was closed before the command started"
    assert not (tmp_path / "started").exists()


def test_two_agents_of_one_replica_start_it_once(bench: Bench, tmp_path: Path) -> None:
    folder = bench.replica(["sh", "-c", f"echo started >> {tmp_path}/starts; sleep 0.5"])
    for agent in [bench.start(folder) for _ in range(4)]:
        agent.wait(PATIENCE_SECONDS)
    assert (tmp_path / "starts").read_text() == "started\n"
    assert bench.status()["state"] == "succeeded"
    bench.start(folder).wait(PATIENCE_SECONDS)
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_replica_whose_agent_was_killed_is_not_run_again(bench: Bench, tmp_path: Path) -> None:
    folder = bench.replica(["sh", "-c", f"echo started >> {tmp_path}/starts; sleep 600"])
    agent = bench.start(folder)
    bench.wait_for((tmp_path / "starts").exists)
    agent.kill()
    agent.wait()
    bench.wait_for(lambda: not bench.carriers())
    bench.start(folder).wait(PATIENCE_SECONDS)
    status = bench.status()
    assert (status["state"], status["reason"], status["signal"]) == ("failed", "its agent was killed", signal.SIGKILL)
    assert (tmp_path / "starts").read_text() == "started\n"


def test_a_port_in_use_is_reported_and_nothing_starts(bench: Bench, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        bench.run(["touch", str(tmp_path / "started")], hold_port=other.getsockname()[1])
    status = bench.status()
    assert (status["state"], status["reason"]) == ("failed", "port taken")
    assert not (tmp_path / "started").exists()


def test_a_launcher_that_finds_its_port_in_use_gets_its_own_reason(bench: Bench) -> None:
    bench.run(["sh", "-c", "echo 'RuntimeError: EADDRINUSE: address already in use' >&2; exit 1"])
    assert bench.status()["reason"] == "port taken"


def test_the_port_is_held_until_the_launcher_listens(bench: Bench) -> None:
    port = free_port()
    script = f"import socket; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', {port})); s.listen(); print('listens')"
    go = bench.root / "go"
    words = f'until [ -e {go} ]; do sleep 0.05; done; exec python3 -c "{script}"'
    folder = bench.replica(["sh", "-c", words], hold_port=port)
    agent = bench.start(folder)
    bench.wait_for(lambda: bench.status().get("state") == "running")
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port))
    go.touch()
    agent.wait(PATIENCE_SECONDS)
    assert bench.control_plane.of().texts() == ["listens"]


def test_a_stop_waits_for_the_grace_period_and_then_kills(bench: Bench) -> None:
    folder = bench.replica(
        ["sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"], grace_seconds=1
    )
    agent = bench.start(folder)
    bench.wait_for(lambda: bench.control_plane.of().texts() == ["ready"])
    asked_at = time.monotonic()
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert time.monotonic() - asked_at > 0.9
    status = bench.status()
    assert (status["state"], status["signal"], status["reason"]) == ("failed", signal.SIGKILL, "stopped on request")
    assert "asked" in bench.control_plane.of().texts() and status["is_drained"]


def test_a_second_stop_ends_the_grace_period(bench: Bench) -> None:
    folder = bench.replica(
        ["sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"], grace_seconds=600
    )
    agent = bench.start(folder)
    bench.wait_for(lambda: bench.control_plane.of().texts() == ["ready"])
    agent.terminate()
    bench.wait_for(lambda: "asked" in bench.control_plane.of().texts())  # two signals sent at once would merge into one
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["signal"] == signal.SIGKILL


@pytest.mark.parametrize("told", [{}, {"framework": "plain", "is_rank": True}])
def test_a_command_that_leaves_with_0_when_it_is_asked_to_stop_has_been_stopped(bench: Bench, told: dict) -> None:
    """It may have saved and left: a suspended job that counted as succeeded could not be resumed."""
    folder = bench.replica(["sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"], **told)
    agent = bench.start(folder)
    bench.wait_for(lambda: bench.control_plane.of().texts(0 if told else -1) == ["ready"])
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    status = bench.status()
    assert (status["state"], status["exit_code"], status["reason"]) == ("failed", 0, "stopped on request")


def test_ranks_that_complete_during_the_grace_period_have_succeeded(bench: Bench) -> None:
    script = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
time.sleep(600)
"""
    words = [sys.executable, fake_torchrun.__file__, "--nproc_per_node=1", "train.py"]
    folder = bench.replica(words, files={"train.py": script}, env=torch_env(0, nodes=1, port=free_port()))
    agent = bench.start(folder)
    bench.wait_for(lambda: "ready" in bench.control_plane.of().texts(0))
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["state"] == "succeeded"


def test_processes_left_behind_are_killed_at_the_end(bench: Bench) -> None:
    received = bench.run(["sh", "-c", "setsid sleep 600 & echo left"])
    assert received.texts() == ["left"] and bench.carriers() == []


def test_a_stray_process_without_its_environment_is_killed_too(bench: Bench, tmp_path: Path) -> None:
    bench.run(["sh", "-c", f"setsid env -i sleep 600 & echo $! > {tmp_path}/pid"])
    pid = int((tmp_path / "pid").read_text())
    bench.wait_for(lambda: not is_alive(pid))


def test_one_replica_never_kills_another(bench: Bench) -> None:
    go = bench.root / "go"
    other = bench.replica(["sh", "-c", f"echo ready; until [ -e {go} ]; do sleep 0.05; done; echo done"], index=1)
    agent = bench.start(other)
    bench.wait_for(lambda: bench.control_plane.of("worker-1").texts() == ["ready"])
    bench.run(["true"])
    go.touch()
    agent.wait(PATIENCE_SECONDS)
    assert bench.control_plane.of("worker-1").texts() == ["ready", "done"]


def test_the_agent_writes_its_process_identity(bench: Bench) -> None:
    agent = bench.start(bench.replica(["sleep", "600"]))
    bench.wait_for(lambda: bench.status().get("state") == "running")
    told = json.loads((bench.attempt / "worker-0" / "agent.json").read_text())
    stat = Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()
    assert (told["pid"], told["started"]) == (agent.pid, int(stat[19]))
    assert told["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_stop_takes_effect_while_the_workspace_cannot_be_fetched(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    control_plane.down()
    agent = bench.start(bench.replica(["true"], wants_workspace=True), MUSTER_DRAIN_SECONDS="0.1")
    bench.wait_for(lambda: bench.status().get("state") == "starting")
    time.sleep(0.3)
    agent.terminate()
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["reason"] == "stopped on request"


def test_output_is_mirrored_with_rank_and_line_numbers(bench: Bench) -> None:
    agent = bench.start(bench.replica(["echo", "hello"], mirror=True))
    assert agent.communicate(timeout=PATIENCE_SECONDS)[0] == b"[-1:0] hello\n"
    assert bench.status()["state"] in ENDED


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b"#!/bin/bash\r\necho 1\r\n",
            "its first line names /bin/bash and ends as lines do on Windows (CRLF); convert it",
        ),
        (b"#!/opt/conda/bin/python\nprint(1)\n", "its first line names /opt/conda/bin/python, which is not here"),
        (
            b"echo 1\n",
            "it is no program of this machine and does not begin with #!; name its interpreter, such as bash FILE",
        ),
        (b"\xef\xbb\xbf#!/bin/sh\necho hi\n", "a byte order mark, which editors do not show, stands before its #!"),
    ],
)
def test_a_script_that_exists_and_cannot_be_started_says_what_is_wrong_with_its_first_line(
    bench: Bench, control_plane: FakeControlPlane, content: bytes, reason: str
) -> None:
    folder = bench.replica(["./run.sh"], files={"run.sh": ""})
    script = folder / "code/run.sh"
    script.write_bytes(content)
    script.chmod(0o755)
    bench.start(folder).wait(PATIENCE_SECONDS)
    status = bench.status()
    assert (status["state"], status["exit_code"]) == ("failed", 126)
    assert reason in status["reason"]
