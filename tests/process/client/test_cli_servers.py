"""Several servers in one configuration; logout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from muster.http.config import Config, Server, load, save

from tests.process.client.conftest import Run
from tests.process.client.fake import TOKEN, USER, FakeMuster


def test_servers_are_added_selected_and_removed(run: Run, config_file: Path) -> None:
    run("servers", "add", "lab", "http://lab:8000/")
    assert "muster login https://cloud --name cloud" in run("servers", "add", "cloud", "https://cloud").stdout
    assert load(config_file).current == "lab"

    assert run("servers", "use", "cloud").stdout == "Now using cloud (https://cloud)\n"
    assert load(config_file).current == "cloud"
    run("servers", "remove", "cloud")
    assert load(config_file) == Config("", {"lab": Server("http://lab:8000")})
    assert "no server is selected (known: lab): run `muster servers use NAME`" in run("jobs").stderr


def test_the_list_of_servers_shows_no_token(run: Run, logged_in: FakeMuster) -> None:
    run("servers", "add", "cloud", "https://cloud")

    for form in ("table", "json", "yaml"):
        assert TOKEN not in run("servers", "-o", form).stdout
    assert json.loads(run("servers", "list", "-o", "json").stdout) == [
        {"name": "lab", "url": logged_in.url, "user": USER, "has_token": True, "is_current": True},
        {"name": "cloud", "url": "https://cloud", "user": "", "has_token": False, "is_current": False},
    ]
    assert run("servers", "-q").stdout.split() == ["lab", "cloud"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["servers", "add", "lab", "https://other"],
            "a server named lab already exists: run `muster servers remove lab`",
        ),
        (["servers", "add", "x", "lab"], "'lab' is not a server address"),
        (["servers", "use", "moon"], "no server named moon (known: lab): `muster servers add moon URL`"),
        (["servers", "remove", "moon"], "no server named moon"),
    ],
)
def test_wrong_arguments_are_reported(arguments: list[str], sentence: str, run: Run, logged_in: FakeMuster) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr


def test_logout_revokes_the_token_and_deletes_it(run: Run, logged_in: FakeMuster, config_file: Path) -> None:
    result = run("logout")

    assert (result.exit_code, result.stdout) == (0, f"Logged out of lab ({logged_in.url})\n")
    assert logged_in.tokens[0]["revoked_at"] is not None
    assert logged_in.tokens[1]["revoked_at"] is None
    assert load(config_file).servers["lab"] == Server(logged_in.url)
    assert run("jobs").exit_code == 77


def test_a_token_that_is_already_invalid_is_only_deleted(run: Run, logged_in: FakeMuster, config_file: Path) -> None:
    save(Config("lab", {"lab": Server(logged_in.url, "revoked", USER)}), path=config_file)

    assert run("logout", "lab").exit_code == 0
    assert load(config_file).servers["lab"].token == ""


def test_a_token_that_cannot_be_revoked_is_kept(run: Run, config_file: Path) -> None:
    save(Config("lab", {"lab": Server("http://127.0.0.1:1", TOKEN, USER)}), path=config_file)

    result = run("logout")

    assert result.exit_code == 75
    assert "`muster logout lab --keep-token` deletes it here only" in result.stderr
    assert load(config_file).servers["lab"].token == TOKEN
    assert run("logout", "--keep-token").exit_code == 0
    assert load(config_file).servers["lab"].token == ""


def test_a_configuration_that_others_can_read_is_refused_while_it_holds_a_token(
    run: Run, logged_in: FakeMuster, config_file: Path
) -> None:
    config_file.chmod(0o644)

    result = run("jobs")

    assert result.exit_code == 1
    assert f"{config_file} contains a token and other users can read it (mode 644): run `chmod 600" in result.stderr
    assert logged_in.requests == []
    # A command that needs no file is not affected.
    assert run("jobs", env={"MUSTER_URL": logged_in.url, "MUSTER_TOKEN": TOKEN}).exit_code == 0


def test_a_malformed_token_is_reported_as_such(run: Run, logged_in: FakeMuster) -> None:
    result = run("jobs", env={"MUSTER_TOKEN": "first line\nsecond line"})

    assert result.exit_code == 1
    assert "MUSTER_TOKEN is not a token" in result.stderr
