"""Saved logins, and what overrides them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from muster.errors import ConfigError, NotLoggedIn
from muster.http.config import Config, Server, clean_url, config_path, find_server, load, save

LAB, CLOUD = Server("http://lab:8000", "lab-token", "ada"), Server("https://cloud", "cloud-token", "ada")


@pytest.fixture
def saved(config_file: Path) -> Path:
    save(Config("lab", {"lab": LAB, "cloud": CLOUD}), path=config_file)
    return config_file


def test_the_file_is_made_readable_by_its_owner_only(config_file: Path) -> None:
    config_file.parent.mkdir(parents=True)
    config_file.write_text("{}")
    config_file.chmod(0o644)

    save(Config("lab", {"lab": LAB}), path=config_file)

    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert [path.name for path in config_file.parent.iterdir()] == ["config.json"]


def test_a_saved_configuration_is_loaded(saved: Path) -> None:
    assert load(saved) == Config("lab", {"lab": LAB, "cloud": CLOUD})


def test_an_absent_file_is_an_empty_configuration(config_file: Path) -> None:
    assert load(config_file) == Config()


@pytest.mark.parametrize("content", ["not json", "[]", '{"servers": {"lab": {}}}', '{"servers": []}'])
def test_a_broken_file_is_an_error_with_a_remedy(content: str, config_file: Path) -> None:
    config_file.parent.mkdir(parents=True)
    config_file.write_text(content)

    with pytest.raises(ConfigError, match=r"config\.json is not a Muster configuration: move it away"):
        load(config_file)


def test_a_new_login_becomes_the_current_one_and_keeps_the_others() -> None:
    config = Config("lab", {"lab": LAB}).with_server("cloud", server=CLOUD)

    assert (config.current, set(config.servers)) == ("cloud", {"lab", "cloud"})


def test_tokens_do_not_show_in_tracebacks() -> None:
    assert "lab-token" not in repr(LAB)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, LAB),
        ({"MUSTER_TOKEN": "other"}, Server("http://lab:8000", "other", "ada")),
        ({"MUSTER_URL": "https://cloud/"}, CLOUD),
        (
            {"MUSTER_URL": "HTTPS://Cloud:443/api/v1"},
            Server("HTTPS://Cloud:443", "cloud-token", "ada"),
        ),  # another spelling of the same address
        ({"MUSTER_URL": "http://cloud"}, Server("http://cloud")),  # plain http is a different server
        ({"MUSTER_URL": "cloud"}, CLOUD),  # the name of a saved server
        ({"MUSTER_URL": "cloud", "MUSTER_TOKEN": "t"}, Server("https://cloud", "t", "ada")),
        ({"MUSTER_URL": "https://stranger"}, Server("https://stranger")),  # no token of another server is sent there
        ({"MUSTER_URL": "https://stranger", "MUSTER_TOKEN": "t"}, Server("https://stranger", "t")),
    ],
)
def test_the_environment_wins_over_the_file(environ: dict[str, str], expected: Server, saved: Path) -> None:
    assert find_server(environ={"MUSTER_CONFIG": str(saved), **environ}) == expected


def test_arguments_win_over_the_environment(saved: Path) -> None:
    environ = {"MUSTER_CONFIG": str(saved), "MUSTER_URL": "https://cloud", "MUSTER_TOKEN": "t"}

    assert find_server(url="http://lab:8000", token="mine", environ=environ) == Server("http://lab:8000", "mine", "ada")


def test_a_server_can_be_chosen_by_name(saved: Path) -> None:
    environ = {"MUSTER_CONFIG": str(saved), "MUSTER_URL": "https://stranger"}

    assert find_server(name="cloud", environ=environ) == CLOUD
    with pytest.raises(ConfigError, match=r"no server named moon .known: cloud, lab.: `muster login URL --name moon`"):
        find_server(name="moon", environ=environ)


def test_without_any_server_the_error_names_muster_login(config_file: Path) -> None:
    with pytest.raises(NotLoggedIn, match="no server is configured: run `muster login URL`"):
        find_server()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"MUSTER_CONFIG": "/x/y.json"}, "/x/y.json"),
        ({"XDG_CONFIG_HOME": "/conf"}, "/conf/muster/config.json"),
    ],
)
def test_the_path_of_the_file(environ: dict[str, str], expected: str) -> None:
    assert config_path(environ) == Path(expected)


@pytest.mark.parametrize("url", ["http://h:8000", "http://h:8000/", " http://h:8000/api/v1/ "])
def test_an_address_may_end_with_a_slash_or_the_path_of_the_api(url: str) -> None:
    assert clean_url(url) == "http://h:8000"


@pytest.mark.parametrize("url", ["h:8000", "ftp://h", "http://", "http://h:port", "http://[", ""])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is not a server address: give it as https://host"):
        clean_url(url)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot write"):
        save(Config(), path=tmp_path / "file" / "config.json")


def test_the_file_is_readable_json(saved: Path) -> None:
    assert json.loads(saved.read_text())["servers"]["lab"]["url"] == "http://lab:8000"
