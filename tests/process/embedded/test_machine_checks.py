"""bin/_env checks the machine first and names what is missing in one line. Each case is a machine without one thing."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def check(folder: Path, what: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one function of bin/_env with `folder` first on the PATH."""
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **environ}
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; source {ROOT}/bin/_env; {what}"], env=env, capture_output=True, text=True
    )


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "modules", "words"),
    [
        ("0", "1", "Python 3.11 or newer is needed"),
        ("1", "0", "apt-get install python3-venv"),
    ],
)
def test_a_python_that_is_too_old_or_lacks_venv_is_reported(tmp_path, version, modules, words):
    # Stands for another machine's Python: it answers the two checks that bin/_env runs with it.
    answers = (
        f'case "$2" in *version_info*) exit {1 - int(version)};; *venv*) exit {1 - int(modules)};; *) echo 3.9;; esac'
    )
    other = program(tmp_path, "python-of-another-machine", answers)
    done = check(tmp_path, "check_machine", MUSTER_PYTHON=str(other))
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "says", "words"), [("uname", "Darwin", "needs Linux"), ("uname", "riscv64", "x86_64 or arm64")]
)
def test_other_systems_and_architectures_are_refused(tmp_path, name, says, words):
    program(tmp_path, name, f'[ "$1" = -s ] && [ {says} != Darwin ] && echo Linux || echo {says}')
    done = check(tmp_path, "check_machine")
    assert (done.returncode, words in done.stderr) == (1, True)


def test_arm64_without_a_compiler_names_the_package_to_install(tmp_path):
    program(tmp_path, "uname", '[ "$1" = -s ] && echo Linux || echo aarch64')
    program(tmp_path, "cc", "exit 1")
    done = check(tmp_path, "check_machine")
    assert (done.returncode, "build-essential" in done.stderr) == (1, True)


def test_too_little_disk_is_refused_before_any_download(tmp_path):
    program(tmp_path, "df", 'echo head; echo "/dev/x 1 1 3145728 1% /"')
    done = check(tmp_path, f"check_disk {tmp_path} 12 'Installing PyTorch'")
    assert (done.returncode, "needs 12 GiB" in done.stderr, "has 3 GiB" in done.stderr) == (1, True, True)


@pytest.mark.parametrize(
    ("mark", "held"), [("server", ["server"]), ("demo", ["server", "demo"]), ("dev", ["server", "demo", "dev"])]
)
def test_an_environment_holds_what_the_smaller_lock_files_have(tmp_path, mark, held):
    (tmp_path / f".{mark}-ready").touch()
    names = ("server", "demo", "dev")
    assert [name for name in names if check(tmp_path, f"holds {tmp_path} {name}").returncode == 0] == held


def test_a_larger_lock_file_has_everything_that_a_smaller_one_has():
    """They are installed into one environment, one after another, while Muster may be running from it."""
    server, demo, dev = (
        {line.split()[0] for line in (ROOT / f"requirements/{name}.lock").read_text().splitlines() if "==" in line}
        for name in ("server", "demo", "dev")
    )
    assert server < demo < dev
    assert not [line for line in server if line.startswith("torch==")]
