"""muster submit: files, secrets, volumes, plans; muster wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster, failure
from tests.process.client.test_cli_submit import sent

BASIC = ["submit", "--queue", "research", "--no-workspace"]


def test_a_job_file_is_enough_and_flags_win(run: Run, logged_in: FakeMuster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("queue: research\ncommand: torchrun train.py\nnodes: 2\nenv: {A: 1, B: 2}\nidempotency_key: once\n")

    run("submit", "--from-file", file, "--no-workspace")
    assert sent(logged_in) == {
        "command": ["torchrun", "train.py"], "queue": "research", "nodes": 2, "env": {"A": "1", "B": "2"},
    }  # fmt: skip
    assert logged_in.requests[-1]["headers"]["Idempotency-Key"] == "once"
    run("submit", "--from-file", file, "--no-workspace", "--nodes", 4, "--env", "B=3", "python", "other.py")
    assert sent(logged_in) == {
        "command": ["python", "other.py"], "queue": "research", "nodes": 4, "env": {"A": "1", "B": "3"},
    }  # fmt: skip


def test_a_job_can_be_read_from_standard_input(run: Run, logged_in: FakeMuster) -> None:
    run("submit", "--from-file", "-", "--no-workspace", input="queue: research\ncommand: 'true'\n")

    assert sent(logged_in) == {"command": ["true"], "queue": "research"}


def test_flags_override_an_environment_file(run: Run, logged_in: FakeMuster, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nB=2\n")

    run(*BASIC, "--env-file", tmp_path / ".env", "--env", "B=3", "true")

    assert sent(logged_in)["env"] == {"A": "1", "B": "3"}


def test_every_new_option_reaches_the_server(run: Run, logged_in: FakeMuster) -> None:
    options = "--volume data:/data --volume scratch:/tmp --grace 5 --start-timeout 60 --framework torchrun --nodes 4 --min-nodes 2"

    run(*BASIC, *options.split(), "true")

    assert sent(logged_in) == {
        "command": ["true"], "queue": "research", "volumes": ["data:/data", "scratch:/tmp"], "grace_seconds": 5,
        "start_timeout_seconds": 60, "framework": "torchrun", "nodes": 4, "min_nodes": 2,
    }  # fmt: skip


def test_a_secret_is_read_from_the_environment_or_standard_input(run: Run, logged_in: FakeMuster) -> None:
    run(*BASIC, "--secret", "HF", "--secret", "WB", "--secrets-stdin", "true", input="WB=two\n", env={"HF": "one"})

    assert sent(logged_in)["secrets"] == {"WB": "two", "HF": "one"}


def test_a_secret_is_never_taken_from_the_command_line(run: Run, logged_in: FakeMuster) -> None:
    result = run(*BASIC, "--secret", "HF=hunter2", "true")

    assert (result.exit_code, logged_in.requests) == (2, [])
    assert "hunter2" not in result.output
    assert "taken from $HF" in result.stderr


def test_a_secret_that_cannot_be_prompted_for_is_an_error(run: Run, logged_in: FakeMuster) -> None:
    result = run(*BASIC, "--secret", "NOT_SET_ANYWHERE", "true")

    assert (result.exit_code, logged_in.requests) == (2, [])
    assert "no value for the secret NOT_SET_ANYWHERE" in result.stderr


def test_the_distribution_is_shown_before_the_job_is_submitted(run: Run, logged_in: FakeMuster) -> None:
    result = run(*BASIC, "--gpus", 8, "torchrun", "train.py")

    assert [seen["path"] for seen in logged_in.requests] == ["/api/v1/plans", "/api/v1/jobs"]
    assert result.stderr == "2 nodes x 4 processes, 8 gpu of research; room for it now\n"


def test_a_server_without_plans_still_accepts_the_job(run: Run, logged_in: FakeMuster) -> None:
    logged_in.faults = [(404, {"detail": "no such page"}, {})]

    assert run(*BASIC, "--gpus", 8, "true").exit_code == 0
    assert len(logged_in.jobs) == 1


@pytest.mark.parametrize("words", [["plan"], ["submit", "--dry-run", "--secret", "S"]])
def test_a_plan_submits_nothing_and_asks_for_no_secret(words: list[str], run: Run, logged_in: FakeMuster) -> None:
    result = run(*words, "--queue", "research", "--nodes", 2, "--gpus", 8, "torchrun", "train.py")

    assert (result.exit_code, logged_in.jobs) == (0, {})
    assert result.stdout.splitlines()[-1].split() == ["worker", "2", "4", "torchrun", "train.py"]
    assert "secrets" not in json.loads(logged_in.requests[-1]["body"])


def test_a_plan_reports_errors_like_a_submission(run: Run, logged_in: FakeMuster) -> None:
    result = run("plan", "--queue", "nowhere", "true")

    assert result.exit_code == 1
    assert result.stderr == "muster: this is no job: queue: no such queue (you gave 'nowhere')\n"


def test_a_field_unknown_to_the_client_is_sent_as_from_a_job_file(run: Run, logged_in: FakeMuster) -> None:
    result = run(*BASIC, "--set", "checkpoint_minutes=5", "--set", "nodes=3", "true")

    assert result.exit_code == 0, result.stderr
    assert (sent(logged_in)["checkpoint_minutes"], sent(logged_in)["nodes"]) == (5, 3)


@pytest.mark.parametrize("where", ["submit", "plan", "file"])
def test_an_unknown_field_is_refused_before_code_is_sent(
    where: str, run: Run, logged_in: FakeMuster, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("queue: research\ncommand: true\nquue: x\n".replace("true", "'true'"))
    (tmp_path / "train.py").write_text("code")
    words = {
        "submit": ["submit", "--queue", "research", "--dir", tmp_path, "--set", "quue=x", "true"],
        "plan": ["plan", "--queue", "research", "--set", "quue=x", "true"],
        "file": ["submit", "--from-file", file, "--dir", tmp_path],
    }[where]
    result = run(*words)

    assert result.exit_code == 1
    assert "quue is not a job field; the fields are checkpoint_minutes, command" in result.stderr
    assert [seen["path"] for seen in logged_in.requests] == ["/api/v1/job-fields"]


def test_a_removal_is_given_as_a_duration_and_a_restart_policy_as_kubernetes_says_it(
    run: Run, logged_in: FakeMuster, tmp_path: Path
) -> None:
    described = tmp_path / "job.yaml"
    described.write_text("queue: research\nttl: 1h30m\nrestart_policy: Never\n")
    known = [
        {"name": name, "type": kind, "help": ""}
        for name, kind in (("ttl_seconds", "integer"), ("restart_policy", "string"))
    ]
    logged_in.get_job_fields = lambda seen: (200, {"results": known, "next": None}, {})  # type: ignore[method-assign]
    words = ("submit", "--from-file", described, "--no-workspace")
    assert run(*words, "--", "torchrun", "train.py").exit_code == 0
    assert (sent(logged_in)["ttl_seconds"], sent(logged_in)["restart_policy"]) == (5400, "Never")
    run(*words, "--ttl", "7d", "--restart-policy", "OnFailure", "--", "torchrun", "train.py")
    assert (sent(logged_in)["ttl_seconds"], sent(logged_in)["restart_policy"]) == (604800, "OnFailure")
    wrong = run(*words, "--ttl", "soon", "--", "torchrun", "train.py")
    assert wrong.exit_code == 2 and "'soon' is no duration; write it as 90s, 15m, 2h, 7d or 1h30m" in wrong.stderr


def test_without_the_servers_field_list_the_clients_own_is_used(run: Run, logged_in: FakeMuster) -> None:
    logged_in.faults = [(404, {"detail": "no such page"}, {})]
    result = run(*BASIC, "--set", "checkpoint_minutes=5", "true")

    assert (result.exit_code, logged_in.jobs) == (1, {})
    assert "checkpoint_minutes is not a job field" in result.stderr


def test_the_fields_are_listed_with_their_bounds(run: Run, logged_in: FakeMuster) -> None:
    lines = run("fields").stdout.splitlines()

    assert lines[0].split() == ["FIELD", "OF", "TYPE", "BOUNDS", "DEFAULT", "MEANING"]
    assert lines[1].split() == ["nodes", "all", "integer", "1", "to", "4096", "1", "replicas"]
    assert run("fields", "-q").stdout.split() == ["nodes", "checkpoint_minutes"]


def test_only_the_id_is_printed_for_scripts(run: Run, logged_in: FakeMuster) -> None:
    assert run(*BASIC, "-q", "true").stdout == "1\n"
    assert json.loads(run(*BASIC, "-o", "json", "true").stdout)["id"] == 2


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"phase": "succeeded"}, 0),
        ({"phase": "failed", "first_failure": failure(exit_code=9)}, 9),
        ({"phase": "cancelled"}, 120),
    ],
)
def test_waiting_exits_with_the_code_of_the_job(
    fields: dict[str, object], expected: int, run: Run, logged_in: FakeMuster
) -> None:
    logged_in.add_job(**fields)

    assert run("wait", 1).exit_code == expected


def test_waiting_ends_at_a_suspended_job_and_prints_how_to_resume(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(phase="suspended", suspended=True)

    result = run("wait", 1)

    assert (result.exit_code, result.stdout) == (121, "job 1 (job-1): suspended\n")
    assert result.stderr == "muster: job 1 is suspended: run `muster resume 1`, then `muster logs -f 1`\n"


def test_a_job_that_was_just_resumed_is_waited_for(run: Run, logged_in: FakeMuster) -> None:
    """The phase changes a moment after the request to resume."""
    number = logged_in.add_job(phase="suspended", suspended=False)
    asked: list[str] = []
    answer = logged_in.answer

    def answered(seen: dict[str, Any]) -> Any:
        asked.append(seen["path"])
        if len(asked) == 4:
            logged_in.change(number, phase="succeeded")
        return answer(seen)

    logged_in.answer = answered  # type: ignore[method-assign]
    assert run("wait", number).exit_code == 0
    assert len(asked) == 4


def test_waiting_stops_at_its_timeout(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(phase="running")

    result = run("wait", 1, "--timeout", 0)

    assert result.exit_code == 1
    assert "still running after 0 s" in result.stderr


def test_following_ends_at_a_suspended_job(run: Run, logged_in: FakeMuster) -> None:
    logged_in.script = [
        lambda muster, job: muster.say(job, "one"),
        lambda muster, job: muster.change(job, phase="suspended"),
    ]

    result = run(*BASIC, "--follow", "true")

    assert (result.exit_code, result.stdout) == (121, "[rank 0] one\n")
    assert "`muster resume 1`, then `muster logs -f 1`" in result.stderr


def test_the_lines_of_a_followed_job_can_be_json_objects(run: Run, logged_in: FakeMuster) -> None:
    logged_in.script = [
        lambda muster, job: muster.say(job, "one"),
        lambda muster, job: muster.change(job, phase="succeeded"),
    ]

    result = run(*BASIC, "--follow", "-q", "-o", "json", "true")

    assert json.loads(result.stdout.splitlines()[-1])["text"] == "one"
