"""A torchrun that waits until the host of its rendezvous can be looked up, below a real agent."""

import signal
from pathlib import Path

import pytest

from agent.names import NO_HOST
from tests.process.agent.bench import Bench
from tests.support.patience import PATIENCE_SECONDS

UNKNOWN = "one-master-0.m-one.jobs.invalid"  # RFC 6761: never there


@pytest.fixture
def torchrun(tmp_path: Path) -> str:
    """Return the path of a program of this name that only says so."""
    path = tmp_path / "torchrun"
    path.write_text("#!/bin/sh\necho joins $PET_MASTER_ADDR with $@\n")
    path.chmod(0o755)
    return str(path)


def test_it_starts_once_the_name_is_known(bench: Bench, torchrun: str) -> None:
    received = bench.run([torchrun, "--no-python", "x"], env={"PET_MASTER_ADDR": "localhost"})
    assert received.texts() == ["joins localhost with --no-python x"]
    assert bench.status()["state"] == "succeeded"


def test_what_is_no_torchrun_does_not_wait(bench: Bench) -> None:
    assert bench.run(["echo", "here"], env={"PET_MASTER_ADDR": UNKNOWN}).texts() == ["here"]


def test_the_wait_is_reported_and_ends_with_the_start_timeout(bench: Bench, torchrun: str) -> None:
    received = bench.run([torchrun, "x"], env={"PET_MASTER_ADDR": UNKNOWN}, start_timeout_seconds=11)
    waiting, error = received.texts()
    assert waiting == f"muster: waiting for {UNKNOWN}, where the nodes meet: its name cannot be looked up yet"
    assert error.startswith(f"muster: error: the host {UNKNOWN} cannot be looked up after 11 s (")
    assert [one["state"] for one in received.kind("replica")] == ["running", "failed"]
    assert bench.status()["exit_code"] == NO_HOST


def test_a_stop_ends_the_wait(bench: Bench, torchrun: str) -> None:
    agent = bench.start(bench.replica([torchrun, "x"], env={"PET_MASTER_ADDR": UNKNOWN}))
    bench.wait_for(lambda: bench.status().get("state") == "running")
    agent.send_signal(signal.SIGTERM)
    agent.wait(PATIENCE_SECONDS)
    status = bench.status()
    assert (status["state"], status["signal"], status["reason"]) == ("failed", signal.SIGTERM, "stopped on request")
    assert bench.control_plane.of("worker-0").texts() == []
