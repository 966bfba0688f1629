"""`muster login` of a user with a second factor, against the real server."""

import pyotp
import pytest
from click.testing import CliRunner
from django.utils import timezone
from muster.cli import cli
from muster.client import Client
from muster.errors import Invalid

from accounts.models import SecondFactor, Token
from accounts.signin import second_factor

RIGHT = "owner-has-a-password"


@pytest.fixture
def secret(transactional_db, people) -> str:
    text = second_factor.begin(people.owner)
    second_factor.confirm(people.owner, pyotp.TOTP(text).at(timezone.now()))
    SecondFactor.objects.update(last_step=0)  # as if half a minute had passed
    return text


@pytest.fixture
def login(site, secret, tmp_path, monkeypatch):
    for name in ("MUSTER_URL", "MUSTER_TOKEN", "MUSTER_SERVER"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, typed: str):
        line = ["login", site.url, "--user", "owner", *words]
        return CliRunner().invoke(cli, line, input=typed, env={"MUSTER_CONFIG": str(tmp_path / "config.json")})

    run.url = site.url
    return run


def test_it_asks_for_the_code_after_the_password(login, secret):
    ended = login(typed=f"{RIGHT}\n{pyotp.TOTP(secret).now()}\n")
    assert ended.exit_code == 0, ended.output
    assert "Code of your second factor" in ended.output
    assert Token.objects.filter(user__username="owner").count() == 1


def test_a_script_passes_the_code_as_an_option_and_fails_without_it(login, secret):
    missing = login("--password-stdin", typed=f"{RIGHT}\n")
    assert missing.exit_code == 1 and "code: is required" in missing.output + missing.stderr
    given = login("--password-stdin", "--code", pyotp.TOTP(secret).now(), typed=f"{RIGHT}\n")
    assert given.exit_code == 0, given.output


def test_a_wrong_code_issues_no_token(login):
    assert login("--code", "000000", typed=f"{RIGHT}\n").exit_code == 77
    assert not Token.objects.exists()


def test_the_sdk_accepts_a_code_too(login, secret):
    with Client(login.url, token="") as client:
        with pytest.raises(Invalid, match="authenticator"):
            client.login("owner", password=RIGHT)
        assert client.login("owner", password=RIGHT, code=pyotp.TOTP(secret).now()).user == "owner"
