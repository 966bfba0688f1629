"""muster jobs, status, queues, whoami, cancel, suspend, resume, resubmit."""

from __future__ import annotations

import json

import pytest
from muster.client import Client

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster, failure

RANK = {
    "attempt": 1,
    "rank": 3,
    "replica": "worker-1",
    "node": "host-b",
    "state": "failed",
    "step": 120,
    "exit_code": 7,
}


def test_the_list_shows_why_a_job_waits_or_failed(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(name="waits", message="needs 16 a100; queue research may use 8")
    logged_in.add_job(name="broke", phase="failed", message="rank 3 exited with code 7")

    result = run("jobs")

    assert result.exit_code == 0
    header, broke, waits = result.stdout.splitlines()
    assert header.split() == ["ID", "NAME", "PHASE", "QUEUE", "USER", "SIZE", "RANKS", "RAN", "CREATED", "WHY"]
    assert broke.startswith("2   broke  failed")
    assert broke.endswith("rank 3 exited with code 7")
    assert waits.endswith("needs 16 a100; queue research may use 8")
    assert " 0/2 " in waits


def test_the_list_fits_the_terminal(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(name="n" * 100, message="m" * 300)

    lines = run("jobs", env={"COLUMNS": "90"}).stdout.splitlines()

    assert max(len(line) for line in lines) <= 90


def test_the_list_can_be_filtered(run: Run, logged_in: FakeMuster) -> None:
    for phase in ("queued", "running", "running"):
        logged_in.add_job(phase=phase)

    found = json.loads(run("jobs", "--phase", "running", "--queue", "research", "--limit", 1, "-o", "json").stdout)

    assert [job["id"] for job in found] == [3]
    assert found[0]["from_the_future"] is True  # JSON output keeps unknown fields of the server


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["jobs"], "No jobs yet: `muster submit --queue QUEUE -- COMMAND` submits one"),
        (["jobs", "--phase", "failed"], "No jobs match: use fewer filters"),
    ],
)
def test_an_empty_list_suggests_what_to_do(
    arguments: list[str], sentence: str, run: Run, logged_in: FakeMuster
) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (0, "")
    assert sentence in result.stderr


def test_the_status_of_a_failed_job_shows_the_first_failure_with_its_last_lines(
    run: Run, logged_in: FakeMuster
) -> None:
    logged_in.add_job(
        phase="failed",
        first_failure=failure(),
        admitted_at="2026-11-21T10:00:05Z",
        running_at="2026-11-21T10:01:05Z",
        finished_at="2026-11-21T11:01:05Z",
    )
    logged_in.ranks[1] = [RANK, {**RANK, "rank": 0, "attempt": 0, "node": "earlier-attempt"}]

    said = run("status", "job-1").stdout

    assert said.startswith("failed  job-1 (job 1)")
    for part in ("(after 5s queued)", "(after 1m 00s starting)", "(after 1h 00m running)", "torchrun train.py"):
        assert part in said
    assert "host-b" in said
    assert "code 7" in said
    assert "earlier-attempt" not in said
    assert "GPU" not in said
    assert "first failure: rank 3 exited with code 7 (worker-1" in said
    assert "  | ValueError: loss is nan\n`muster logs 1 --rank 3` shows the whole output\n" in said


@pytest.mark.parametrize(
    ("total", "size"), [(0, "1 × 1"), (1, "1 × 1 = 1 rank"), (8, "1 × 1 = 1 rank planned, 8 started")]
)
def test_the_size_of_a_job_is_said_in_english(run: Run, logged_in: FakeMuster, total: int, size: str) -> None:
    logged_in.add_job(layout="1 × 1", ranks={"total": total})
    assert f"  size      {size}\n" in run("status", "job-1").stdout


def test_the_status_says_what_a_failure_leads_to_and_when_the_job_is_removed(run: Run, logged_in: FakeMuster) -> None:
    words = "if a replica fails, all replicas start again, up to 3 times"
    logged_in.add_job(on_failure=words, ttl_seconds=10800, finished_at=None)
    logged_in.add_job(
        ttl_seconds=90, finished_at="2026-11-21T11:05:00Z", removal_at="2026-11-21T11:10:00Z", phase="succeeded"
    )
    assert f"  restart   {words}\n  " in (said := run("status", 1).stdout)
    assert "  removed   3h after its end\n" in said
    ended = run("status", 2).stdout
    assert "  restart " not in ended, "an older server says nothing"
    assert "  removed   5m after its end, from 2026-11-21 11:10:00 UTC on\n" in ended


def test_the_times_of_a_later_attempt_are_its_own(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(
        phase="failed", attempt=2, created_at="2026-11-21T08:00:00Z", admitted_at="2026-11-21T10:00:00Z",
        running_at="2026-11-21T09:00:00Z", finished_at="2026-11-21T10:00:30Z",
    )  # fmt: skip
    said = run("status", "job-1").stdout
    assert "queued)" not in said and "starting)" not in said, "it was admitted again, and did not run again"


def test_an_attempt_that_another_one_followed_says_why(run: Run, logged_in: FakeMuster) -> None:
    attempts = [
        {"attempt": 1, "outcome": "admitted", "first_failure": failure()}, {"attempt": 2, "outcome": "admitted"},
        {"attempt": 3, "outcome": "succeeded"},
    ]  # fmt: skip
    logged_in.answer = lambda seen: (200, {"results": attempts, "next": None}, {})  # type: ignore[method-assign]
    said = run("attempts", 1).stdout.splitlines()[1:]
    assert ["failed, retried" in said[0], "started again" in said[1], "succeeded" in said[2]] == [True] * 3


def test_the_json_status_is_exactly_the_servers(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job()

    answer = json.loads(run("status", 1, "-o", "json").stdout)

    assert answer == logged_in.jobs[1]


def test_queues_show_what_is_free(run: Run, logged_in: FakeMuster) -> None:
    lines = run("queues").stdout.splitlines()

    assert lines[1].split() == ["research", "vision", "local", "cpu", "1", "of", "4", "3", "open"]
    assert lines[2].endswith("closed")
    assert len(json.loads(run("queues", "-o", "json").stdout)) == 2
    logged_in.queues = []
    assert "ask an administrator" in run("queues").stderr


def test_whoami_names_user_team_server_and_token(run: Run, logged_in: FakeMuster) -> None:
    said = run("whoami").stdout

    for part in ("ada", "vision (member)", logged_in.url, "laptop (mst_se...)", "0.1.0"):
        assert part in said
    assert json.loads(run("whoami", "-o", "json").stdout)["user"] == "ada"


@pytest.mark.parametrize(("verb", "phase"), [("cancel", "stopping"), ("suspend", "stopping"), ("resume", "queued")])
def test_verbs_accept_several_jobs(verb: str, phase: str, run: Run, logged_in: FakeMuster) -> None:
    for _ in range(2):
        logged_in.add_job(phase="running")

    result = run(verb, 1, "job-2")

    assert (result.exit_code, result.stdout) == (
        0,
        "".join(f"job {n}: {verb} requested, now {phase}\n" for n in (1, 2)),
    )


def test_cancel_now_is_sent_as_such(run: Run, logged_in: FakeMuster, client: Client) -> None:
    logged_in.add_job(phase="stopping")

    assert run("cancel", "--now", 1).stdout == "job 1: cancel requested, now stopping\n"
    client.cancel(1, now=True)
    client.cancel(1)
    sent = [json.loads(one["body"]) for one in logged_in.requests if one["method"] == "POST"]
    assert sent == [{"act": "cancel", "ids": [1], "now": True}, {"now": True}, {}]


def test_one_refusal_does_not_stop_the_other_jobs_of_a_command(run: Run, logged_in: FakeMuster) -> None:
    for phase in ("succeeded", "running"):
        logged_in.add_job(phase=phase)

    result = run("cancel", 1, 99, 2)

    assert result.exit_code == 1
    assert result.stdout == "job 2: cancel requested, now stopping\n"
    assert result.stderr.splitlines() == [
        "muster: job 1 has already succeeded",
        "muster: job 99: Not found.",
    ]


def test_deleting_a_log_requires_confirmation(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(phase="failed")

    assert run("delete-log", 1, input="n\n").exit_code != 0
    assert not [one for one in logged_in.requests if one["path"].endswith("delete-log")]
    result = run("delete-log", 1, 99, input="y\n")
    assert (result.exit_code, result.stdout) == (1, "job 1: log deleted\n")
    assert "muster: no job 99 that you may see" in result.stderr


def test_resubmit_prints_how_to_follow_the_copy(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(phase="failed")

    assert "Submitted job 2 (job-1), a copy of 1; follow it with `muster logs -f 2`" in run("resubmit", 1).stdout
    assert json.loads(run("resubmit", 1, "-o", "json").stdout)["id"] == 3


def test_priority_says_what_it_does_and_sets_it(run: Run, logged_in: FakeMuster) -> None:
    logged_in.add_job(phase="queued")
    foreseen = "It is first with -3.\nIt waits then: 1 ahead in queue research; job 7 is first; may start unknown: it depends on job 7, of which nothing is known.\n"

    assert run("priority", 1, -3, "--dry-run").stdout == foreseen
    assert [one["method"] for one in logged_in.requests[-1:]] == ["GET"], "nothing was changed"
    assert run("priority", "job-1", -3).stdout == f"{foreseen}job 1 (job-1) has priority -3\n"
    assert json.loads(run("priority", 1, 4, "-o", "json").stdout)["priority"] == 4
    assert "not a valid integer" in run("priority", 1, "high").stderr
