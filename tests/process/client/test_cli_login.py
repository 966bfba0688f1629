"""muster login, and which server commands use."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from muster.http.config import load

from tests.process.client.conftest import Run
from tests.process.client.fake import TOKEN, FakeMuster


def test_a_login_by_password_is_saved_for_its_owner_only(run: Run, muster: FakeMuster, config_file: Path) -> None:
    result = run("login", muster.url + "/", "--user", "ada", "--password-stdin", input="lovelace\n")

    host = muster.url.removeprefix("http://")
    assert result.exit_code == 0
    assert result.stdout == f"Logged in to {muster.url} as ada; saved as {host} in {config_file}\n"
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert load(config_file).servers[host].token == TOKEN
    assert json.loads(muster.requests[0]["body"])["name"].startswith("muster on ")


def test_a_password_is_prompted_for_and_not_shown(run: Run, muster: FakeMuster) -> None:
    result = run("login", muster.url, input="ada\nlovelace\n")

    assert result.exit_code == 0
    assert "Password" in result.stderr
    assert "lovelace" not in result.output


def test_a_token_is_checked_before_it_is_saved(run: Run, muster: FakeMuster, config_file: Path) -> None:
    refused = run("login", muster.url, "--token", "wrong")
    assert refused.exit_code == 77
    assert "does not accept this token: create a new one" in refused.stderr
    assert not config_file.exists()

    assert run("login", muster.url, "--token", TOKEN, "--name", "lab").exit_code == 0
    assert load(config_file).current == "lab"


def test_a_wrong_password_is_one_line(run: Run, muster: FakeMuster) -> None:
    result = run("login", muster.url, "--user", "ada", "--password-stdin", input="wrong\n")

    assert (result.exit_code, result.stderr) == (77, "muster: wrong user name or password\n")


def test_a_saved_login_is_used_and_another_can_be_chosen(run: Run, muster: FakeMuster) -> None:
    run("login", muster.url, "--token", TOKEN, "--name", "lab")

    assert run("whoami").exit_code == 0
    assert run("--server", "lab", "whoami").exit_code == 0
    assert "no server named moon (known: lab)" in run("--server", "moon", "whoami").stderr


def test_the_environment_alone_is_enough(run: Run, muster: FakeMuster, config_file: Path) -> None:
    result = run("whoami", env={"MUSTER_URL": muster.url, "MUSTER_TOKEN": TOKEN})

    assert result.exit_code == 0
    assert not config_file.exists()


def test_a_login_overridden_by_the_environment_prints_a_warning(run: Run, muster: FakeMuster) -> None:
    result = run("login", muster.url, "--token", TOKEN, env={"MUSTER_URL": "https://other"})

    assert "MUSTER_URL=https://other is set and takes precedence over this login: unset it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["login"], "Missing argument 'URL': see `muster login --help`"),
        (
            ["login", "http://h", "--token", "t", "--user", "u"],
            "--token cannot be combined with --user, --password-stdin, --code, --scope or --days",
        ),
        (["jobs", "--phase", "lost"], "'lost' is not one of 'queued'"),
        (["sumbit"], "No such command 'sumbit'"),
        (["logs", "1", "--rank", "all"], "'all' is neither a rank (0, 1, ...) nor `launcher`"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], sentence: str, run: Run) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stderr.startswith("muster: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("environ", "exit_code", "sentence"),
    [
        ({}, 77, "muster: no server is configured: run `muster login URL`, or set MUSTER_URL and MUSTER_TOKEN\n"),
        ({"MUSTER_URL": "https://lab"}, 77, "muster: no token for https://lab: run `muster login https://lab`"),
        ({"MUSTER_URL": "lab", "MUSTER_TOKEN": "t"}, 1, "muster: 'lab' is not a server address"),
        (
            {"MUSTER_URL": "http://127.0.0.1:1", "MUSTER_TOKEN": "t"},
            75,
            "muster: nothing answers at http://127.0.0.1:1 (conn",
        ),
    ],
)
def test_without_a_usable_server_the_error_is_one_line_with_a_remedy(
    environ: dict[str, str], exit_code: int, sentence: str, run: Run
) -> None:
    result = run("jobs", env=environ)

    assert result.exit_code == exit_code
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1


def test_a_refused_token_is_an_error_that_names_muster_login(run: Run, logged_in: FakeMuster) -> None:
    result = run("jobs", env={"MUSTER_TOKEN": "revoked"})

    assert result.stderr == (
        f"muster: the token is missing, wrong or revoked: run `muster login {logged_in.url}` (or check MUSTER_TOKEN)\n"
    )
