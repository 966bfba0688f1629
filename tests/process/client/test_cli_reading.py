"""Every verb that reads: as a table, as the server's exact JSON, and as ids."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
import yaml

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster

RANK = {"attempt": 1, "rank": 3, "replica": "worker-1", "node": "host-b", "state": "running", "step": 120}

LISTS: dict[str, tuple[list[str], str, str]] = {
    # verb: the path it requests, a word in its table, its first id
    "jobs": (["jobs"], "job-1", "1"),
    "ranks 1": (["jobs", "1", "ranks"], "host-b", "3"),
    "replicas 1": (["jobs", "1", "replicas"], "worker-0", "job-1-0"),
    "attempts 1": (["jobs", "1", "attempts"], "rank 3 exited", "1"),
    "events 1": (["jobs", "1", "events"], "submitted", "submitted"),
    "checkpoints 1": (["jobs", "1", "checkpoints"], "2.0 KiB", "step-100"),
    "workspaces": (["workspaces"], "vision", "5"),
    "files 1": (["workspaces", "5", "files"], "executable", "train.py"),
    "queues": (["queues"], "research", "research"),
    "queues list": (["queues"], "closed", "research"),
    "teams": (["teams"], "vision", "vision"),
    "teams list": (["teams"], "admin", "vision"),
    "teams members list vision": (["teams", "vision", "members"], "viewer", "ada"),
    "teams accounts list vision": (["teams", "vision", "service-accounts"], "vision-bot", "vision-bot"),
    "tokens": (["tokens"], "valid for", "1"),
    "tokens list": (["tokens"], "laptop", "1"),
    "audit": (["audit"], "nominal: 4 > 8", "3"),
}
ITEMS: dict[str, tuple[list[str], str, str]] = {
    "status 1": (["jobs", "1"], "job-1", "1"),
    "queues show research": (["queues", "research"], "1 of 4", "research"),
    "teams show vision": (["teams", "vision"], "you are admin", "vision"),
    "me": (["me"], "laptop", "ada"),
    "whoami": (["me"], "scope submit", "ada"),
}


@pytest.fixture
def server(logged_in: FakeMuster) -> FakeMuster:
    logged_in.add_job(name="job-1", phase="running", workspace=5)
    entry = {"path": "train.py", "kind": "file", "size": 5, "digest": "aa", "executable": True, "target": ""}
    logged_in.files["aa"] = b"hello \x1b[2J\n"
    logged_in.workspaces["bb"] = {"train.py": entry}
    logged_in.ranks[1] = [RANK]
    return logged_in


def said(server: FakeMuster, path: list[str]) -> Any:
    seen = {"method": "GET", "path": "/api/v1/" + "/".join(path), "query": {}, "headers": {}}
    return getattr(server, f"get_{path[0]}")(seen, *path[1:])[1]


@pytest.mark.parametrize("verb", [*LISTS, *ITEMS])
def test_json_output_is_exactly_the_servers_objects(verb: str, run: Run, server: FakeMuster) -> None:
    path = {**LISTS, **ITEMS}[verb][0]
    expected = said(server, path)
    expected = expected["results"] if verb in LISTS else expected

    assert json.loads(run(*verb.split(), "-o", "json").stdout) == expected
    assert yaml.safe_load(run(*verb.split(), "-o", "yaml").stdout) == expected


@pytest.mark.parametrize("verb", [*LISTS, *ITEMS])
def test_the_default_is_a_table_that_fits_and_quiet_prints_ids(verb: str, run: Run, server: FakeMuster) -> None:
    _, word, ident = {**LISTS, **ITEMS}[verb]
    table = run(*verb.split())
    narrow = run(*verb.split(), env={"COLUMNS": "60"}).stdout.splitlines()

    assert (table.exit_code, table.stderr) == (0, "")
    assert word in table.stdout
    assert run(*verb.split(), "-q").stdout.splitlines()[0] == ident
    if verb in LISTS:
        assert max(len(line) for line in narrow) <= 60


@pytest.mark.parametrize("verb", sorted(set(LISTS) - {"files 1"}))
def test_an_empty_list_prints_a_hint_on_stderr_only(verb: str, run: Run, server: FakeMuster) -> None:
    server.answer = lambda seen: (200, {"results": [], "next": None}, {})  # type: ignore[method-assign]

    people, programs, shells = run(*verb.split()), run(*verb.split(), "-o", "json"), run(*verb.split(), "-q")

    assert (people.stdout, json.loads(programs.stdout), shells.stdout) == ("", [], "")
    assert people.stderr.count("\n") == 1
    assert programs.stderr == shells.stderr == ""


HOSTILE = "\x1b[2J\x07evil\x9b31m\u202e\x7f"


@pytest.mark.parametrize("verb", [*LISTS, *ITEMS, "plan --queue research true"])
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_no_response_of_the_server_controls_the_terminal(form: str, verb: str, run: Run, server: FakeMuster) -> None:
    real = server.answer

    def spoiled(seen: dict[str, Any]) -> Any:
        status, body, headers = real(seen)
        return status, _spoil(body), headers

    server.answer = spoiled  # type: ignore[method-assign]
    result = run(*verb.split(" true")[0].split(), "-o", form, *(["true"] if verb.endswith("true") else []))

    assert result.exit_code == 0, result.stderr
    assert "evil" in result.stdout
    assert not set(result.stdout) & set("\x1b\x07\x9b\u202e\x7f")


def _spoil(body: Any) -> Any:
    """Insert control characters into every text that is not a time or an address."""
    if isinstance(body, dict):
        return {
            name: value if name.endswith(("at", "next", "since")) else _spoil(value) for name, value in body.items()
        }
    if isinstance(body, list):
        return [_spoil(item) for item in body]
    return f"{body}{HOSTILE}" if isinstance(body, str) else body


def test_an_error_of_the_server_is_escaped_too(run: Run, server: FakeMuster) -> None:
    server.faults = [(400, {"detail": f"no{HOSTILE}"}, {})]

    result = run("jobs")

    assert result.exit_code == 1
    assert not set(result.stderr) & set("\x1b\x07\x9b\u202e\x7f")


def test_the_list_can_include_all_pages(run: Run, server: FakeMuster) -> None:
    for _ in range(229):
        server.add_job()

    assert len(run("jobs", "--all", "-q").stdout.splitlines()) == 230
    assert len(run("jobs", "-q").stdout.splitlines()) == 20
    assert len(run("jobs", "-q", "-n", 3).stdout.splitlines()) == 3


def test_several_phases_can_be_requested(run: Run, server: FakeMuster) -> None:
    run("jobs", "--phase", "queued,running", "--name", "x")
    run("jobs", "--active")

    assert [seen["query"].get("phase") for seen in server.requests] == ["queued,running", "active"]
    assert server.requests[0]["query"]["name"] == "x"


def test_watching_polls_until_interrupted(run: Run, server: FakeMuster, monkeypatch: pytest.MonkeyPatch) -> None:
    rests = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", rest)
    result = run("jobs", "--watch", "--every", 7)

    assert (result.exit_code, rests) == (130, [7, 7, 7])
    assert result.stdout.count("job-1") == 3


def test_the_audit_is_filtered_by_the_server(run: Run, server: FakeMuster) -> None:
    assert run("audit", "--actor", "bob", "-q").stdout.split() == ["2"]
    run("audit", "--team", "vision", "--act", "queue.changed", "-n", 5)
    assert server.requests[-1]["query"] == {"team": "vision", "act": "queue.changed", "limit": "5"}


def test_metrics_are_summarized_or_listed_point_by_point(run: Run, server: FakeMuster) -> None:
    assert run("metrics", 1).stdout.splitlines()[1].split() == ["loss", "0", "1", "1", "0.5", "0.5", "0.5"]
    assert run("metrics", 1, "--csv").stdout == "series,rank,at_ms,step,value\nloss,0,1763700000123,1,0.5\n"
    assert run("metrics", 1, "--name", "accuracy").stdout == ""
    assert json.loads(run("metrics", 1, "-o", "json").stdout)[0]["points"] == [[1763700000123, 1, 0.5]]


def test_a_series_that_is_not_finite_says_since_when(run: Run, server: FakeMuster) -> None:
    series = [{"name": "loss", "rank": 0, "points": [[1, 1, 2.0], [2, 20, None], [3, 30, None]]}]
    server.answer = lambda seen: (200, {"series": series}, {})  # type: ignore[method-assign]

    assert run("metrics", 1).stdout.splitlines()[1].split() == [
        "loss", "0", "3", "30", "NaN", "since", "step", "20", "2", "2",
    ]  # fmt: skip
    assert run("metrics", 1, "--csv").stdout.splitlines()[2] == "loss,0,2,20,NaN"


def test_a_rank_whose_loss_is_not_finite_says_so(run: Run, server: FakeMuster) -> None:
    ranks = [{"rank": 0, "state": "running", "nan_series": "loss", "nan_step": 20}]
    server.answer = lambda seen: (200, {"results": ranks, "next": None}, {})  # type: ignore[method-assign]
    assert "loss is NaN since step 20" in run("ranks", 1).stdout


def test_no_name_of_a_series_is_a_formula_in_a_spreadsheet(run: Run, server: FakeMuster) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "loss"]
    series = [{"name": one, "rank": 0, "points": [[1, 1, 2.0]]} for one in names]
    server.answer = lambda seen: (200, {"series": series}, {})  # type: ignore[method-assign]
    written = list(csv.reader(run("metrics", 1, "--csv").stdout.splitlines()))[1:]
    assert [row[0] for row in written] == [f"'{one}" for one in names[:4]] + ["loss"]


def test_the_page_of_a_job_can_be_opened(run: Run, server: FakeMuster, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)

    assert run("open", "job-1").exit_code == 0
    assert opened == [server.jobs[1]["url"]]
    assert run("open", "--print").stdout == f"{server.url}/jobs\n"
    server.change(1, url="file:///etc/passwd")
    assert run("open", 1, "--print").stdout == f"{server.url}/jobs\n"


def test_versions_are_shown_without_a_server_too(run: Run, server: FakeMuster) -> None:
    assert run("version").stdout.splitlines()[1] == f"server 0.1.0 at {server.url}"
    assert run("version", env={"MUSTER_URL": "http://127.0.0.1:1", "MUSTER_TOKEN": "t"}).stdout.startswith("muster ")


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "#compdef muster"), ("fish", "complete")])
def test_completion_scripts_are_printed_for_each_shell(shell: str, word: str, run: Run) -> None:
    result = run("completion", shell)

    assert result.exit_code == 0
    assert word in result.stdout
    assert "_MUSTER_COMPLETE" in result.stdout


def test_job_names_are_completed_and_an_unreachable_server_gives_no_completion(run: Run, server: FakeMuster) -> None:
    asked = {"_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": "muster status jo", "COMP_CWORD": "2"}

    assert run(env=asked).stdout == "plain,job-1\n"
    assert run(env={**asked, "MUSTER_URL": "http://127.0.0.1:1", "MUSTER_TOKEN": "t"}).stdout.strip() == ""


def test_code_is_compared_and_printed(run: Run, server: FakeMuster) -> None:
    new = {"path": "new.py", "kind": "file", "size": 5, "digest": "aa", "executable": False, "target": ""}
    server.workspaces["cc"] = {"new.py": new, "train.py": {**new, "path": "train.py"}}
    server.add_job(workspace=6)

    same, changed = run("diff", 1, 1), run("diff", "job-1", 2)

    assert (same.exit_code, same.stdout) == (0, "No changes\n")
    assert (changed.exit_code, changed.stdout) == (1, "+ new.py\n--- train.py\n+++ train.py\n@@\n")
    assert run("diff", 1, 2, "-q").stdout == "new.py\ntrain.py\n"
    assert json.loads(run("diff", 1, 2, "-o", "json").stdout)["added"] == [new]
    assert run("cat", 1, "train.py").stdout == "hello \x1b[2J\n"  # into a pipe: the file as it is
    assert "contains no nothing.py: `muster files` lists" in run("cat", 1, "nothing.py").stderr
