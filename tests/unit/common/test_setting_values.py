"""Values of settings: what is accepted, and how a wrong one is refused without its secrets."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from common import addresses, environment
from common.environment import BadSetting
from common.telemetry import log_config


@pytest.mark.parametrize(
    ("text", "is_on"),
    [("1", True), ("True", True), ("YES", True), ("on ", True), ("0", False), ("False", False), ("no", False), ("Off", False)],
)  # fmt: skip
def test_a_flag_is_on_or_off_in_any_case_of_letters(text, is_on):
    for default in (True, False):
        assert environment.flag("MUSTER_HTTPS", default, environ={"MUSTER_HTTPS": text}) is is_on


@pytest.mark.parametrize("environ", [{}, {"MUSTER_HTTPS": ""}, {"MUSTER_HTTPS": " "}])
def test_an_empty_flag_is_one_that_is_not_set(environ):
    assert environment.flag("MUSTER_HTTPS", True, environ=environ)
    assert not environment.flag("MUSTER_HTTPS", environ=environ)


@pytest.mark.parametrize("text", ["y", "enabled", "2", "-"])
def test_any_other_flag_is_refused_by_name(text):
    with pytest.raises(BadSetting, match=f"MUSTER_HTTPS is '{text}'; it must be 1, true, yes or on, or else"):
        environment.flag("MUSTER_HTTPS", environ={"MUSTER_HTTPS": text})


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/x@redis:6379/0", "redis://:hunter2#x@redis:6379/0", "redis://:hunter2?x@redis:6379/0",
        "redis://:hunter2[x@redis:6379/0", "redis://:123/hunter2@redis:6379/0", "redis://ann/hunter2@redis:6379/0",
        "redis://redis:6379/hunter2", "redis://redis:99999/0", "redis://redis:6379/0#hunter2", "redis://",
        "redis://redis/0?socket_timeout=hunter2", "redis://redis/0?tls=hunter2",
    ],
)  # fmt: skip
def test_an_address_that_redis_clients_misread_is_refused_without_its_secret(url):
    with pytest.raises(BadSetting, match="REDIS_URL") as refused:
        addresses.broker_tls(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis", "redis://redis/", "redis://redis:6379/0", "redis://:p%2Fw@redis:6379/11", "redis://u:p@[::1]:6379/0",
        "redis://redis/0?db=3&socket_timeout=5", "unix:///run/redis.sock?db=1", "unix://:pw@/run/redis.sock",
    ],
)  # fmt: skip
def test_an_address_of_redis_is_accepted(url):
    assert addresses.broker_tls(url) is None


def test_an_address_that_cannot_be_split_is_refused_without_its_secret():
    for name, read in (
        ("DATABASE_URL", lambda url: addresses.database(url, pool=1)),
        ("MUSTER_FILES", addresses.files),
        ("MUSTER_TRACES", lambda url: addresses.collector(url, name="MUSTER_TRACES")),
        ("MUSTER_PUBLIC_URL", lambda url: addresses.pages(url, name="MUSTER_PUBLIC_URL")),
    ):
        with pytest.raises(BadSetting, match=f"{name} is no address") as refused:
            read("postgres://muster:hunter2[@db/muster")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://muster.example", "http://127.0.0.1:8000", "https://lab.example/muster/", ""])
def test_an_address_of_pages_is_accepted(url):
    assert addresses.pages(url, name="MUSTER_PUBLIC_URL") == url


@pytest.mark.parametrize(
    "url", ["muster.example", "muster.example:8000", "ftp://muster.example", "https://", "https://h:x", "https://a b", "https://h?x"]
)  # fmt: skip
def test_any_other_address_of_pages_is_refused_with_what_to_write(url):
    with pytest.raises(
        BadSetting, match=r"MUSTER_PUBLIC_URL is .*; it must be what people type.*https://muster.example"
    ):
        addresses.pages(url, name="MUSTER_PUBLIC_URL")


def test_credentials_in_the_address_of_pages_are_not_shown():
    with pytest.raises(BadSetting) as refused:
        addresses.pages("https://ann:hunter2@muster.example", name="MUSTER_PUBLIC_URL")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "0.0.0.0:9090", "[::]:9090", "localhost:1", "h:65535"])
def test_an_address_to_listen_at_is_accepted(text):
    assert addresses.listener(text, name="MUSTER_METRICS") == text


@pytest.mark.parametrize(
    "text", ["9090", ":9090", "0.0.0.0", "0.0.0.0:0", "0.0.0.0:65536", "::9090", "h:-1", "h:9090 "]
)
def test_any_other_address_to_listen_at_is_refused(text):
    with pytest.raises(BadSetting, match=r"MUSTER_METRICS is .*; it must be ADDRESS:PORT"):
        addresses.listener(text, name="MUSTER_METRICS")


@pytest.mark.parametrize("level", ["debug", "Info", "WARNING"])
def test_a_level_is_accepted_in_any_case_of_letters(level):
    assert log_config.configuration(level=level, events="off")["root"]["level"] == level.upper()


@pytest.mark.parametrize("level", ["loud", "10", "warn"])
def test_any_other_level_is_refused_by_name(level):
    with pytest.raises(ImproperlyConfigured, match=f"MUSTER_LOG_LEVEL is {level}; it must be one of debug, info"):
        log_config.configuration(level=level, events="off")
