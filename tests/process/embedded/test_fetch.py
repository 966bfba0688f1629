"""Installing PyTorch while the demo is up: its progress, its failure, and a Ctrl-C meanwhile."""

import os
import signal
import threading
import time

import pytest

from embedded import EmbeddedError
from embedded.fetch import fetch, fetched_mb
from embedded.supervisor import StopAsked, Supervisor
from tests.process.embedded.world import processes_naming

PIP = """Collecting torch==2.15.0 (from -r demo.lock (line 2))
  Downloading torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl (821.0 MB)
     ━━━━━━━━━━━━━━━━━━━━━━ 821.0/821.0 MB 74.2 MB/s eta 0:00:00
Collecting nvidia-cublas
  Downloading nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl (1.2 GB)
  Downloading filelock-3.20.0-py3-none-any.whl (16 kB)
"""


@pytest.fixture
def said():
    return []


def install(script: str) -> list[str]:
    return ["bash", "-c", script]


def test_sizes_are_summed_from_what_pip_prints():
    assert fetched_mb(PIP) == pytest.approx(2021.016)
    assert fetched_mb("ERROR: no space left") == 0


def test_progress_is_shown_until_it_is_installed(tmp_path, said):
    (tmp_path / "pip").write_text(PIP)
    script = f"cat {tmp_path / 'pip'}; until [ -e {tmp_path / 'seen'} ]; do sleep 0.1; done"

    def say(text: str) -> None:
        said.append(text)
        if "of about 3 GB" in text:
            (tmp_path / "seen").touch()

    fetch(Supervisor(said.append), log=tmp_path / "install.log", say=say, install=install(script))
    assert said[1:] == ["  2.0 of about 3 GB", "PyTorch is there."]


def test_a_failure_repeats_the_installers_last_words(tmp_path, said):
    with pytest.raises(EmbeddedError, match=r"install.log ends with:\n.*no space left"):
        fetch(
            Supervisor(said.append), log=tmp_path / "install.log", say=said.append,
            install=install("echo 'ERROR: no space left' >&2; exit 1"),
        )  # fmt: skip


def test_ctrl_c_ends_the_installer_with_its_children(tmp_path, said):
    supervisor = Supervisor(said.append)
    mark = tmp_path / "mark"
    script = f"sh -c 'touch {mark}; sleep 1000; :' & wait"

    def stop_when_it_runs() -> None:
        while not mark.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    supervisor.listen()
    try:
        threading.Thread(target=stop_when_it_runs, daemon=True).start()
        with pytest.raises(StopAsked):
            fetch(supervisor, log=tmp_path / "install.log", say=said.append, install=install(script))
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    end = time.monotonic() + 60
    while processes_naming(str(mark)):
        assert time.monotonic() < end
        time.sleep(0.05)
