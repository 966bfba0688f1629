"""muster.report: its cost, its messages, and that it never blocks training."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster._report import _Reporter, checkpoints

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    server = socket.socket(socket.AF_UNIX)
    name = f"muster-test-{os.getpid()}-{time.monotonic_ns()}"
    server.bind("\0" + name)
    server.listen()
    monkeypatch.setenv("MUSTER_REPORT", "@" + name)
    monkeypatch.setenv("RANK", "3")
    yield server
    server.close()


def heard(server: socket.socket, reporter: _Reporter) -> list:
    connection, _ = server.accept()
    reporter._lose()
    content = b""
    while piece := connection.recv(1 << 20):
        content += piece
    connection.close()
    return [json.loads(line) for line in content.splitlines()]


def test_points_arrive_after_an_announcement(listener: socket.socket) -> None:
    reporter = _Reporter()
    reporter.send({"step": 12, "loss": 0.25, "count": 3, 'odd "name"': True})
    reporter.send({"loss": float("inf")})
    announcement, first, second = heard(listener, reporter)
    assert announcement["announce"]["rank"] == 3 and announcement["announce"]["pid"] == os.getpid()
    assert first[1:] == [12, {"loss": 0.25, "count": 3, 'odd "name"': 1}] and abs(first[0] - time.time()) < 10
    assert second[1:] == [None, {"loss": None}]


def test_with_a_full_socket_points_are_dropped_and_counted_without_waiting(listener: socket.socket) -> None:
    reporter = _Reporter()
    for step in range(20_000):
        reporter.send({"step": step, "loss": 0.5})
    dropped = reporter._dropped
    assert dropped > 0
    connection, _ = listener.accept()
    got = connection.recv(1 << 20)
    reporter.send({"step": 1, "loss": 0.5})
    reporter._lose()
    while piece := connection.recv(1 << 20):
        got += piece
    connection.close()
    messages = [json.loads(line) for line in got.splitlines()]
    told = sum(one["dropped"] for one in messages if isinstance(one, dict) and "dropped" in one)
    assert told == dropped and len([one for one in messages if isinstance(one, list)]) + told == 20_001


def test_outside_a_job_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_REPORT", raising=False)
    _Reporter().send({"step": 1, "loss": 2.0})


def test_a_dead_agent_is_no_error(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = _Reporter()
    reporter.send({"step": 1})
    listener.accept()[0].close()
    for step in range(3):
        reporter.send({"step": step, "loss": 1.0})
    monkeypatch.setenv("MUSTER_REPORT", "@muster-nobody-listens")
    _Reporter().send({"step": 1})


@pytest.mark.parametrize("value", ["0.5", None, [1.0], b"1"])
def test_a_value_that_is_not_a_number_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=r"muster\.report: loss is no number: "):
        _Reporter().send({"loss": value})
    with pytest.raises(ValueError, match="a metric has no name"):
        _Reporter().send({"": 1.0})


def test_tensors_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    assert b'{"loss":2.5}' in _Reporter()._line({"loss": torch.tensor(2.5), "step": torch.tensor(3)})


def test_a_forked_child_reports_on_its_own_connection(listener: socket.socket) -> None:
    code = """
import os, muster
muster.report(step=1)
pid = os.fork()
if pid == 0:
    muster.report(step=2)
    os._exit(0)
os.waitpid(pid, 0)
muster.report(step=3)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "client")})
    steps = []
    for _ in range(2):
        connection, _ = listener.accept()
        messages = [json.loads(line) for line in connection.makefile()]
        steps.append([one[1] for one in messages if isinstance(one, list)])
        connection.close()
    assert steps == [[1, 3], [2]]


def test_checkpoints_returns_the_configured_folder_or_a_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_CHECKPOINTS", str(tmp_path / "shared" / "checkpoints"))
    assert Path(checkpoints()).is_dir() and checkpoints() == str(tmp_path / "shared" / "checkpoints")
    monkeypatch.delenv("MUSTER_CHECKPOINTS")
    monkeypatch.chdir(tmp_path)
    assert checkpoints() == str(tmp_path / "checkpoints")


def test_the_agents_copy_without_a_client_names_the_package_to_install(pyz: Path) -> None:
    code = "import muster\ntry: muster.Client\nexcept ImportError as error: print(error)"
    told = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(pyz)}, capture_output=True, text=True
    )
    assert "pip install muster-client" in told.stdout, told.stderr


def test_the_agents_copy_finds_an_installed_client(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster" / "__init__.py").touch()
    (tmp_path / "muster" / "client.py").write_text("class Client: pass")
    code = "import muster, muster.client; print(muster.Client.__name__, muster.__file__)"
    env = {"PYTHONPATH": f"{pyz}:{tmp_path}"}
    told = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True)
    assert told.stdout.split()[0] == "Client" and "agent.pyz" in told.stdout, told.stderr


def test_the_cost_of_a_report(listener: socket.socket, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the cost without a limit, so that a busy machine does not fail the test."""
    reporter = _Reporter()
    reporter.send({"step": 0, "loss": 0.0})
    connection, _ = listener.accept()
    spent = []
    for step in range(5_000):
        began = time.perf_counter_ns()
        reporter.send({"step": step, "loss": 0.123456789, "accuracy": 0.98})
        spent.append(time.perf_counter_ns() - began)
        if step % 100 == 0:
            connection.recv(1 << 20)
    connection.close()
    spent.sort()
    with capsys.disabled():
        print(f"\nmuster.report: median {spent[2500] / 1000:.1f} us, 99% {spent[4950] / 1000:.1f} us")
    assert reporter._dropped == 0
