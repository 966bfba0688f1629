"""The two scripts of the README, run unchanged, do what the README promises."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 300

# Some lines, a metric and an exit code: no PyTorch beyond its launcher.
SHORT = """
import os, sys, muster
rank = os.environ["RANK"]
for step in range(3):
    muster.report(step=step, loss=1.0 / (step + 1))
    print(f"rank {rank} step {step}", flush=True)
sys.exit(int(os.environ.get("CODE", 0)))
"""
TALKATIVE = """
import sys, time
for number in range(200):
    print(f"line {number}", flush=True)
    time.sleep(0.1)
sys.exit(7)
"""


def kill_web(installation, *, after: int) -> int:
    """Kill the web process that was started after this one; return its id."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (pid := installation.installation.pids.get("web")) in (None, after):
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return pid


def block(language: str) -> str:
    """The only code block of this language in the README's section for scripts."""
    section = re.search(r"^## From a script$(.*?)^## ", (ROOT / "README.md").read_text(), re.S | re.M)
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section[1], re.S | re.M)
    return found


@pytest.fixture
def place(installation, tmp_path):
    """A folder with a project in it, and the environment that the README requires."""
    (tmp_path / "my_project").mkdir()
    (tmp_path / "my_project" / "train.py").write_text(SHORT)
    path = f"{ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**installation.env, "MUSTER_URL": installation.url, "MUSTER_TOKEN": installation.token, "PATH": path}
    env["PYTHONPATH"] = str(ROOT / "client")
    return tmp_path, env


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def run(words, *, cwd, env, **options):
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)


@pytest.mark.parametrize("language", ["sh", "python"])
def test_a_script_is_at_most_ten_lines(language):
    assert len([line for line in block(language).splitlines() if line.strip()]) <= 10


def test_the_shell_script_submits_follows_and_fetches(place):
    folder, env = place
    done = run(["bash", "-euo", "pipefail", "-c", block("sh")], cwd=folder, env=env)

    assert done.returncode == 0, done.stderr
    assert {f"[rank {rank}] rank {rank} step {step}" for rank in (0, 1) for step in range(3)} <= set(
        done.stdout.splitlines()
    )
    assert lines_of(folder / "rank0.log") == [f"rank 0 step {step}" for step in range(3)]
    figures = [line.split(",") for line in lines_of(folder / "metrics.csv")]
    assert figures[0] == ["series", "rank", "at_ms", "step", "value"]
    assert {(line[0], line[1], line[3]) for line in figures[1:]} >= {("loss", "0", "2"), ("loss", "1", "2")}


@pytest.mark.full
def test_the_shell_script_reports_a_failure(place):
    folder, env = place
    (folder / "my_project" / "train.py").write_text(SHORT.replace('"CODE", 0', '"CODE", 3'))
    done = run(["bash", "-euo", "pipefail", "-c", block("sh")], cwd=folder, env=env)

    assert done.returncode == 1
    assert "first failure: rank" in done.stdout


@pytest.mark.full
def test_the_python_script_submits_follows_and_fetches(place):
    folder, env = place
    done = run([sys.executable, "-c", block("python")], cwd=folder, env=env)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "succeeded None"
    assert lines_of(folder / "rank0.log") == [f"rank 0 step {step}" for step in range(3)]


@pytest.mark.full  # tests/process/client/test_streaming.py follows through lost connections
def test_following_survives_a_killed_web_process_and_exits_with_the_jobs_code(place, installation):
    """Every line is printed exactly once although the server is killed; the exit code is that of the first failing rank."""
    folder, env = place
    (folder / "my_project" / "train.py").write_text(TALKATIVE)
    words = "muster submit --queue default --dir my_project --nodes 1 --nproc 1 --follow -- torchrun train.py"
    follower = subprocess.Popen(
        words.split(), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    heard, killed = [], 0
    for line in follower.stdout:
        heard.append(line.rstrip("\n"))
        if line in ("[rank 0] line 20\n", "[rank 0] line 90\n"):
            killed = kill_web(installation, after=killed)
    _, said = follower.communicate(timeout=PATIENCE_SECONDS)

    assert [line for line in heard if "line " in line and "[rank 0]" in line] == [
        f"[rank 0] line {n}" for n in range(200)
    ]
    assert follower.returncode == 7, said
    assert "Traceback" not in said


@pytest.mark.full
def test_ctrl_c_leaves_the_job_running(place, installation):
    folder, env = place
    (folder / "my_project" / "train.py").write_text(TALKATIVE.replace("sys.exit(7)", "time.sleep(600)"))
    words = "muster submit --queue default --dir my_project --nodes 1 --nproc 1 --follow -- torchrun train.py"
    follower = subprocess.Popen(
        words.split(), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in follower.stdout:
        if "line 5" in line:
            break
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=PATIENCE_SECONDS)
    assert follower.returncode == 130
    number = int(re.search(r"detached; job (\d+) keeps running: `muster logs -f \1` follows it again", said)[1])
    assert installation.client.job(number).phase == "running"

    cancelled = run(["muster", "cancel", "-q", str(number)], cwd=folder, env=env)
    assert cancelled.stdout == f"{number}\n"
    assert run(["muster", "wait", str(number)], cwd=folder, env=env).returncode == 120
