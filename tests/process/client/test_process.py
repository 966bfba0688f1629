"""The command as a separate process, with signals, pipes and terminals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import muster.cli
import pytest
from muster.http.version import VERSION

from tests.process.client.fake import TOKEN, FakeMuster
from tests.process.client.terminal import command, on_a_terminal
from tests.support.patience import PATIENCE_SECONDS

PACKAGES = str(Path(muster.cli.__file__).parents[1])


def environ(fake: FakeMuster | None = None) -> dict[str, str]:
    given = {"MUSTER_URL": fake.url, "MUSTER_TOKEN": TOKEN} if fake else {}
    return {**os.environ, "PYTHONPATH": PACKAGES, **given}


def test_the_version_is_printed() -> None:
    done = subprocess.run(command("--version"), env=environ(), capture_output=True, text=True, check=True)

    assert done.stdout == f"muster {VERSION}\n"


def test_the_start_does_not_import_libraries_that_few_commands_use() -> None:
    program = "import sys, muster.cli; print([name for name in ('asyncio', 'rich', 'pathspec') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], env=environ(), capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_current_folder_is_submitted(muster: FakeMuster, code: Path) -> None:
    done = subprocess.run(
        command("submit", "--queue", "research", "--", "torchrun", "train.py"),
        env=environ(muster), cwd=code, capture_output=True, text=True,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert len(muster.workspaces) == 1


def test_a_submission_from_a_test_does_not_write_to_the_users_home(
    muster: FakeMuster, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the environment that all tests have, in whichever folder they are."""
    monkeypatch.undo()  # removes what the fixtures of this folder add
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(
        command("submit", "--queue", "research", "--", "torchrun", "train.py"),
        env={**environ(muster), "HOME": str(home)}, cwd=code, capture_output=True, check=True,
    )  # fmt: skip

    assert list(Path(os.environ["MUSTER_CACHE"]).iterdir()) != []
    assert list(home.rglob("*")) == []


def test_bin_muster_uses_the_login_of_the_demo_if_muster_url_names_it(muster: FakeMuster, tmp_path: Path) -> None:
    login = {"current": "demo", "servers": {"demo": {"url": muster.url, "token": TOKEN, "user": "ada"}}}
    (tmp_path / "cli.json").write_text(json.dumps(login))
    (tmp_path / "cli.json").chmod(0o600)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    done = subprocess.run(
        [str(Path(PACKAGES).parent / "bin" / "muster"), "jobs", "-q"],
        env={**env, "MUSTER_DATA_DIR": str(tmp_path), "MUSTER_URL": f"{muster.url}/"}, capture_output=True, text=True,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_a_single_line(muster: FakeMuster) -> None:
    done = subprocess.run(command("status", "9"), env=environ(muster), capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "muster: no job 9 that you may see: `muster jobs` lists them\n"


def test_ctrl_c_detaches_from_a_running_job(muster: FakeMuster) -> None:
    number = muster.add_job(phase="running")
    muster.say(number, "first")
    following = subprocess.Popen(
        command("logs", "-f", str(number)),
        env=environ(muster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "[rank 0] first\n"

    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=PATIENCE_SECONDS)

    assert following.returncode == 130
    assert "detached; job 1 keeps running" in said
    assert "Traceback" not in said


def test_ctrl_c_ends_a_request_that_is_not_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = {**environ(), "MUSTER_URL": f"http://127.0.0.1:{listener.getsockname()[1]}", "MUSTER_TOKEN": TOKEN}
        asking = subprocess.Popen(command("me"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1)
            asking.send_signal(signal.SIGINT)
            said = asking.communicate(timeout=PATIENCE_SECONDS)

    assert (asking.returncode, *said) == (130, "", "")


def test_a_closed_pipe_prints_no_error(muster: FakeMuster) -> None:
    number = muster.add_job(phase="succeeded")
    for at in range(20000):
        muster.say(number, f"line {at}")
    line = " ".join(command("logs", str(number))) + " | head -n 1"

    done = subprocess.run(line, shell=True, env=environ(muster), capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("[rank 0] line 0\n", "")


@pytest.mark.parametrize(("extra", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_symbols_and_colours_unless_disabled(
    extra: dict[str, str], has_colour: bool, muster: FakeMuster
) -> None:
    muster.add_job(phase="running")
    said = on_a_terminal(command("jobs"), env={**environ(muster), "TERM": "xterm", "COLUMNS": "100", **extra})

    assert "● running" in said
    assert ("\x1b[" in said) is has_colour
