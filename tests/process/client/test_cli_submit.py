"""muster submit and muster logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from muster.code import memory
from muster.commands.following import exit_code_of
from muster.jobs.models import Job

from tests.process.client import fake
from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster, failure


def sent(muster: FakeMuster) -> dict[str, Any]:
    body = [seen["body"] for seen in muster.requests if seen["path"] == "/api/v1/jobs" and seen["method"] == "POST"][-1]
    found: dict[str, Any] = json.loads(body)
    return found


def test_a_submission_prints_the_next_commands(run: Run, logged_in: FakeMuster, code: Path) -> None:
    result = run("submit", "--queue", "research", "--dir", code, "--", "torchrun", "train.py", "--lr", "3")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == ["Submitted job 1 (job-1) to research", "  follow   muster logs -f 1"]
    assert sent(logged_in) == {"command": ["torchrun", "train.py", "--lr", "3"], "queue": "research", "workspace": 5}


def test_what_is_ignored_is_said_and_sent_along(run: Run, logged_in: FakeMuster, code: Path) -> None:
    for name in ("data/a.bin", "data/b.bin", "last.ckpt"):
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_bytes(bytes(2048))
    (code / ".gitignore").write_text("data/\n*.ckpt\n")
    result = run("submit", "--queue", "research", "--dir", code, "--", "torchrun", "train.py")
    assert result.stderr.splitlines()[0] == "Not sent, since ignored: data/ (2 files, 4.0 KiB), last.ckpt (2.0 KiB)"
    assert logged_in.left_out == [
        {"path": "data/", "files": 2, "size": 4096, "is_whole": True},
        {"path": "last.ckpt", "files": 1, "size": 2048, "is_whole": True},
    ]


def test_a_plan_says_what_of_a_folder_would_be_sent(run: Run, logged_in: FakeMuster, code: Path) -> None:
    (code / "last.ckpt").write_bytes(bytes(2048))
    (code / ".gitignore").write_text("*.ckpt\n")
    result = run("plan", "--queue", "research", "--dir", code, "--", "torchrun", "train.py")
    first, second = result.stderr.splitlines()[:2]
    assert first.startswith("Would send 2 files, ") and "train.py" in first
    assert second == "Not sent, since ignored: last.ckpt (2.0 KiB)" and not logged_in.workspaces


@pytest.mark.parametrize("verb", ["submit", "plan"])
def test_a_command_whose_python_is_not_sent_is_refused_before_anything_is_sent(
    run: Run, logged_in: FakeMuster, code: Path, verb: str
) -> None:
    for name in (".venv/pyvenv.cfg", ".venv/bin/python"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).touch()
    result = run(verb, "--queue", "research", "--dir", code, "--", ".venv/bin/python", "train.py")
    assert result.exit_code != 0 and "the command starts .venv/bin/python, which is not sent" in result.stderr
    assert not logged_in.workspaces and "/api/v1/jobs" not in {seen["path"] for seen in logged_in.requests}


def test_a_server_that_does_not_know_what_is_ignored_gets_the_code_all_the_same(
    run: Run, logged_in: FakeMuster, code: Path
) -> None:
    (code / "last.ckpt").write_text("x")
    (code / ".gitignore").write_text("*.ckpt\n")
    logged_in.known_fields -= {"left_out"}
    assert run("submit", "--queue", "research", "--dir", code, "--", "torchrun", "train.py").exit_code == 0
    assert logged_in.left_out is None and sent(logged_in)["workspace"] == 5


def test_much_more_code_than_the_release_before_sent_is_asked_about(
    run: Run, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = ("submit", "--queue", "research", "--dir", code, "--", "torchrun", "train.py")
    assert run(*submit).exit_code == 0
    (remembered,) = memory.cache_folder().iterdir()
    content = json.loads(remembered.read_text())
    del content["rules"]  # as the release before wrote it
    remembered.write_text(json.dumps(content))
    (code / "weights.bin").write_bytes(bytes(2 << 20))

    result = run(*submit)
    assert result.exit_code != 0 and len(logged_in.workspaces) == 1
    assert "sends what git tracks in ignored folders: 2.0 MiB" in result.stderr
    assert "weights.bin (2.0 MiB)" in result.stderr and "Add --yes" in result.stderr
    assert run("submit", "--yes", *submit[1:]).exit_code == 0 and len(logged_in.workspaces) == 2
    (code / "more.bin").write_bytes(bytes(8 << 20))
    assert run(*submit).exit_code == 0, "it is asked once"


def test_every_option_reaches_the_server(run: Run, logged_in: FakeMuster) -> None:
    options = [
        "--queue",
        "research",
        "--nodes",
        "2",
        "--nproc",
        "4",
        "--gpus",
        "4",
        "--name",
        "n",
        "--retries",
        "0",
        "--priority",
        "-5",
        "--deadline",
        "60",
    ]
    run("submit", *options, "--env", "A=1", "--env", "B=x=y", "--no-workspace", "true")

    assert sent(logged_in) == {
        "command": ["true"],
        "queue": "research",
        "nodes": 2,
        "nproc_per_node": 4,
        "gpus": 4,
        "name": "n",
        "env": {"A": "1", "B": "x=y"},
        "max_retries": 0,
        "priority": -5,
        "deadline_seconds": 60,
    }


def test_the_two_dashes_can_be_omitted(run: Run, logged_in: FakeMuster) -> None:
    run("submit", "--queue", "research", "--no-workspace", "python", "train.py", "--name", "mine", "-o", "x")

    assert sent(logged_in)["command"] == ["python", "train.py", "--name", "mine", "-o", "x"]


def test_the_current_folder_is_sent_when_none_is_named(
    run: Run, logged_in: FakeMuster, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(code)
    run("submit", "--queue", "research", "true")

    assert len(logged_in.workspaces) == 1


def test_each_invocation_has_its_own_key_and_keeps_it_on_retries(run: Run, logged_in: FakeMuster) -> None:
    logged_in.faults = ["lose"]
    for _ in range(2):
        assert run("submit", "--queue", "research", "--no-workspace", "true").exit_code == 0

    assert len(logged_in.jobs) == 2
    assert len(logged_in.requests) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["true"], "Missing option '--queue'"),
        (["--queue", "q"], "Missing argument '-- COMMAND...'"),
        (["--queue", "q", "--env", "A", "true"], "'A' is not KEY=VALUE"),
        (["--queue", "q", "--nodes", "0", "true"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_is_reported_before_any_request(
    arguments: list[str], sentence: str, run: Run, logged_in: FakeMuster
) -> None:
    result = run("submit", *arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr
    assert logged_in.requests == []


def test_a_refusal_names_the_field(run: Run, logged_in: FakeMuster) -> None:
    result = run("submit", "--queue", "nlp", "--no-workspace", "true")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "muster: the job cannot be submitted: queue: no such queue (you gave 'nlp')\n"


def test_following_prints_log_and_phases_and_exits_with_the_jobs_code(run: Run, logged_in: FakeMuster) -> None:
    logged_in.script = [
        lambda muster, job: None,
        lambda muster, job: muster.change(job, phase="running", message=""),
        lambda muster, job: muster.say(job, "W1121 starting", rank=-1),
        lambda muster, job: muster.say(job, "loss 0.5", rank=3),
        lambda muster, job: muster.change(job, phase="failed", first_failure=failure(), message="rank 3 exited"),
    ]

    result = run("submit", "--queue", "research", "--no-workspace", "--follow", "true")

    assert result.exit_code == 7
    assert result.stdout == "[launcher] W1121 starting\n[rank 3] loss 0.5\n"
    assert result.stderr.splitlines()[1:] == ["queued", "running", "failed: rank 3 exited"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phase": "succeeded"}, 0),
        ({"phase": "succeeded", "first_failure": failure()}, 0),  # a retry succeeded
        ({"phase": "failed", "first_failure": failure(exit_code=3)}, 3),
        ({"phase": "failed", "first_failure": failure(exit_code=None, signal=9)}, 137),
        ({"phase": "failed", "first_failure": failure(exit_code=None)}, 1),
        ({"phase": "failed", "first_failure": failure(exit_code=0)}, 1),  # a failed job never exits with 0
        ({"phase": "failed", "first_failure": failure(exit_code=256)}, 1),
        ({"phase": "failed"}, 1),
        ({"phase": "cancelled", "first_failure": failure()}, 120),
        ({"phase": "suspended"}, 121),
        ({"phase": "from-the-future"}, 1),
    ],
)
def test_the_exit_code_is_the_jobs_own(fields: dict[str, Any], expected: int) -> None:
    assert exit_code_of(Job.parse({**fake.job(1), **fields})) == expected


def test_logs_of_all_ranks_carry_their_rank_and_those_of_one_do_not(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    for rank in (-1, 0, 3):
        logged_in.say(number, f"said by {rank}", rank=rank)

    assert run("logs", number).stdout == "[launcher] said by -1\n[rank 0] said by 0\n[rank 3] said by 3\n"
    assert run("logs", "job-1", "--rank", 3).stdout == "said by 3\n"
    assert run("logs", number, "--rank", "launcher").stdout == "said by -1\n"
    assert run("logs", number, "--tail", 1).stdout == "[rank 3] said by 3\n"


def test_logs_of_one_replica(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    logged_in.say(number, "the driver", rank=-1, replica="head-0")
    logged_in.say(number, "a task", rank=-1, replica="worker-1")
    logged_in.say(number, "an epoch", rank=0, replica="worker-1")

    assert run("logs", number).stdout == "[head-0] the driver\n[worker-1] a task\n[rank 0] an epoch\n"
    assert run("logs", number, "--replica", "worker-1").stdout == "[worker-1] a task\n[rank 0] an epoch\n"
    assert run("logs", number, "--replica", "head-0", "--follow").stdout == "[head-0] the driver\n"


def test_a_server_that_knows_no_replicas_is_not_taken_at_its_word(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    logged_in.say(number, "anybody's", rank=-1)

    result = run("logs", number, "--replica", "head-0")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "this server is older than --replica" in result.stderr


def test_logs_can_be_searched_fetched_whole_and_streamed(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    for text in ("hay", "a \x1b[31mneedle"):
        logged_in.say(number, text)

    assert run("logs", number, "--find", "NEEDLE").stdout == "[rank 0] a \\x1b[31mneedle\n"
    assert run("logs", number, "--find", "pin").exit_code == 1
    assert run("logs", number, "--text").stdout == "rank 0: hay\nrank 0: a \\x1b[31mneedle\n"
    assert run("logs", number, "--text", "--raw").stdout == "rank 0: hay\nrank 0: a \x1b[31mneedle\n"
    assert run("logs", "-f", number).stdout == "[rank 0] hay\n[rank 0] a \\x1b[31mneedle\n"


def test_a_line_of_a_log_cannot_control_the_terminal(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="succeeded")
    logged_in.say(number, "tab\there \x1b[2J\x07\r\x9b\u202e\u2028\ud800")

    assert run("logs", number, "--no-prefix").stdout == "tab\there \\x1b[2J\\x07\\x0d\\x9b\\u202e\\u2028\\ud800\n"
    assert json.loads(run("logs", number, "-o", "json").stdout)["text"] == logged_in.lines[number][0]["text"]


def test_a_script_continues_from_a_cursor(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.say(number, "one")
    cursor = run("logs", number, "--show-cursor").stderr.strip()
    logged_in.say(number, "two")

    assert run("logs", number, "--since-cursor", cursor, "--no-prefix").stdout == "two\n"


def test_timestamps_are_in_the_readers_time_zone(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="running")
    logged_in.say(number, "x", at_ms=1763700000123)

    assert run("logs", number, "--rank", 0, "--timestamps").stdout.split()[0][19:23] == ".123"


def test_following_a_finished_job_prints_everything_and_ends(run: Run, logged_in: FakeMuster) -> None:
    number = logged_in.add_job(phase="failed")
    logged_in.page_lines = 3
    for at in range(8):
        logged_in.say(number, str(at))

    result = run("logs", "-f", number)

    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 8)


@pytest.mark.parametrize("arguments", [["logs", "-f", "job-1"], ["submit", "--queue", "research", "--no-workspace",
                                                               "--follow", "--name", "job-1", "true"]])  # fmt: skip
def test_an_interrupt_only_detaches_and_prints_how_to_reattach(
    arguments: list[str], run: Run, logged_in: FakeMuster, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged_in.add_job(phase="running")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    result = run(*arguments)

    number = len(logged_in.jobs)
    assert result.exit_code == 130
    assert f"detached; job {number} keeps running: `muster logs -f {number}` follows it again" in result.stderr
    assert logged_in.jobs[number]["phase"] in ("running", "queued")
