"""A replica whose command is its rank, without a launcher in between: its lines, state and end are that rank's."""

import signal

import pytest

from tests.process.agent.bench import ENDED, Bench
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.patience import PATIENCE_SECONDS

TOLD = {"framework": "plain", "is_rank": True, "first_rank": 4, "index": 3}
RANK = 7


def states(received) -> list[str]:
    return [one["state"] for one in received.kind("rank", rank=RANK)]


def test_its_lines_are_the_ranks_lines(bench: Bench) -> None:
    received = bench.run(["sh", "-c", "echo out; echo err >&2"], **TOLD)
    assert sorted(received.texts(RANK)) == ["err", "out"]
    assert received.texts(-1) == []
    assert states(received) == ["running", "succeeded"]
    assert bench.status(3)["state"] == "succeeded"


def test_what_a_process_without_a_rank_reports_is_the_commands(bench: Bench) -> None:
    files = {"train.py": "import muster\nmuster.report(step=3, loss=0.5)\n"}
    received = bench.run(["python3", "train.py"], files=files, **TOLD)
    assert {one["rank"] for one in received.kind("metrics")} == {RANK}
    assert states(received) == ["running", "succeeded"]


def test_its_failure_is_the_ranks_with_its_traceback(bench: Bench) -> None:
    files = {"train.py": "def step():\n    raise RuntimeError('boom')\nstep()\n"}
    received = bench.run(["python3", "train.py"], files=files, **TOLD)
    (end,) = [one for one in received.kind("rank", rank=RANK) if one["state"] == "failed"]
    assert (end["exit_code"], end["signal"], end["is_stopped"]) == (1, None, False)
    assert "RuntimeError: boom" in end["error"]["traceback"] and end["error_at"]
    assert bench.status(3)["exit_code"] == 1


def test_a_killed_command_is_a_killed_rank(bench: Bench) -> None:
    received = bench.run(["sh", "-c", "kill -KILL $$"], **TOLD)
    (end,) = [one for one in received.kind("rank", rank=RANK) if one["state"] == "failed"]
    assert (end["exit_code"], end["signal"]) == (None, int(signal.SIGKILL))


@pytest.mark.parametrize(
    ("script", "exit_code", "by"),
    [
        ("echo up; exec sleep 600", None, int(signal.SIGTERM)),
        ("trap 'exit 143' TERM; echo up; while :; do sleep 0.1; done", 143, None),
    ],
)
def test_a_stopped_one_did_not_fail_by_itself(
    bench: Bench, control_plane: FakeControlPlane, script: str, exit_code: int | None, by: int | None
) -> None:
    folder = bench.replica(["sh", "-c", script], **TOLD)
    agent = bench.start(folder)
    received = control_plane.of(folder.name)
    bench.wait_for(lambda: received.texts(RANK) == ["up"])
    agent.send_signal(signal.SIGTERM)
    bench.wait_for(lambda: bench.status(3).get("state") in ENDED)
    agent.wait(PATIENCE_SECONDS)
    (end,) = [one for one in received.kind("rank", rank=RANK) if one["state"] == "failed"]
    assert (end["exit_code"], end["signal"], end["is_stopped"]) == (exit_code, by, True)


def test_what_it_reports_are_its_metrics(bench: Bench) -> None:
    script = "import muster\nfor step in range(3): muster.report(step=step, loss=0.5)\n"
    received = bench.run(["python3", "train.py"], files={"train.py": script}, env={"RANK": str(RANK)}, **TOLD)
    points = [point for item in received.kind("metrics", rank=RANK) for point in item["points"]]
    assert [(step, values) for _, step, values in points] == [(step, {"loss": 0.5}) for step in range(3)]


@pytest.mark.parametrize("framework", ["torchrun", "plain", "of a newer server"])
def test_it_gets_no_hook_for_ranks(bench: Bench, framework: str) -> None:
    """A command that is the rank may start torchrun for its own purposes, whose processes are no ranks of the job."""
    received = bench.run(["sh", "-c", "echo hook=${PYTHON_EXEC:+set}"], **{**TOLD, "framework": framework})
    assert received.texts(RANK) == ["hook="]


PRINTS = "import muster\nfor step in range(1, 4): print(f'step {step}/10 loss={1 / step:.2f}')\n"


@pytest.mark.parametrize(
    ("more", "env", "expected"),
    [
        ("", {}, [(1, {"printed/loss": 1.0, "total_steps": 10}), (2, {"printed/loss": 0.5, "total_steps": 10}), (3, {"printed/loss": 0.33, "total_steps": 10})]),
        ("", {"MUSTER_IGNORE_PRINTED": "1"}, []),
        ("muster.report(step=0, acc=0.1)\nimport time; time.sleep(1)\n", {}, [(0, {"acc": 0.1})]),
    ],
)  # fmt: skip
def test_what_it_prints_are_metrics_unless_it_reports_some(bench: Bench, more: str, env: dict, expected: list) -> None:
    script = PRINTS.replace("import muster\n", f"import muster\n{more}")
    received = bench.run(["python3", "train.py"], files={"train.py": script}, env=env, **TOLD)
    found = [point for rank in (RANK, -1) for item in received.kind("metrics", rank=rank) for point in item["points"]]
    assert [(step, values) for _, step, values in found] == expected


ALTERNATES = """
import sys
for n in range(400):
    print(f"{n:04d} batch", flush=True)
    print(f"{n:04d} warning", file=sys.stderr, flush=True)
"""


def test_both_streams_keep_their_order(bench: Bench) -> None:
    received = bench.run(["python3", "train.py"], files={"train.py": ALTERNATES}, **TOLD)
    assert received.texts(RANK) == [f"{n:04d} {what}" for n in range(400) for what in ("batch", "warning")]
