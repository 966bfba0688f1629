"""Values of settings: what is accepted, and how a wrong one is refused without its secrets."""

import importlib.util
from types import ModuleType

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


@pytest.fixture
def settings_of(monkeypatch):
    """The settings' module as read with these variables; Django goes on with its own."""
    found = importlib.util.find_spec("controlplane.settings")

    def read(**environ: str) -> ModuleType:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    return read


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MUSTER_SECRET_KEY": ""}, "MUSTER_SECRET_KEY is not set"),
        ({"MUSTER_CLUSTERS": "{"}, "MUSTER_CLUSTERS must be JSON of the form"),
        ({"MUSTER_CLUSTERS": '["lab"]'}, "MUSTER_CLUSTERS must be JSON of the form"),
        ({"DATABASE_URL": "mysql://db/muster"}, "DATABASE_URL must begin with postgres://"),
        ({"DATABASE_URL": "postgres://muster:hunter2:word@db:x/muster"}, "DATABASE_URL: the port is no number up to 65535"),
        ({"MUSTER_DB_POOL": "0"}, "MUSTER_DB_POOL is 0; it must be at least 1"),
        ({"MUSTER_RATE_USER": "many"}, "MUSTER_RATE_USER is 'many'; it must be a whole number, such as 6000"),
        ({"MUSTER_LOG_DAYS": "a week"}, "MUSTER_LOG_DAYS is 'a week'; it must be a number, such as 90"),
        ({"MUSTER_TRUSTED_PROXIES": "10.0.0.0/40"}, "MUSTER_TRUSTED_PROXIES: '10.0.0.0/40' does not appear to be"),
        ({"MUSTER_SECRET_KEY": "", "MUSTER_SECRET_KEY_FILE": "/nowhere"}, "MUSTER_SECRET_KEY_FILE names /nowhere"),
        ({"REDIS_URL": "redis://:hunter2/word@redis:6379/0"}, "REDIS_URL: the port is no number up to 65535"),
        ({"MUSTER_LOG_LEVEL": "loud"}, "MUSTER_LOG_LEVEL is loud; it must be one of debug, info, warning, error, critical"),
        ({"MUSTER_METRICS": "9090"}, "MUSTER_METRICS is 9090; it must be ADDRESS:PORT"),
        ({"MUSTER_METRICS": "0.0.0.0:99999"}, "MUSTER_METRICS is 0.0.0.0:99999; it must be ADDRESS:PORT with a port up to"),
        ({"MUSTER_HTTPS": "enabled"}, "MUSTER_HTTPS is 'enabled'; it must be 1, true, yes or on, or else 0, false, no or off"),
        ({"MUSTER_PUBLIC_URL": "muster.example"}, "MUSTER_PUBLIC_URL is 'muster.example'; it must be what people type"),
        ({"MUSTER_TRACES": "collector:4318"}, "MUSTER_TRACES is 'collector:4318'; it must be the address of an OTLP/HTTP"),
        ({"MUSTER_TRACES": "http://ann:hunter2@c:4318"}, "credentials belong in OTEL_EXPORTER_OTLP_HEADERS"),
        ({"MUSTER_TRACES_SAMPLE": "10"}, "MUSTER_TRACES_SAMPLE is 10; it is the share of traces that are recorded, from 0 to 1"),
        ({"MUSTER_TRACES_SAMPLE": "all"}, "MUSTER_TRACES_SAMPLE is 'all'; it must be a number"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line_that_holds_no_secret(settings_of, environ, words):
    with pytest.raises(ImproperlyConfigured) as refused:
        settings_of(**environ)
    said = str(refused.value)
    assert words in said and len(said.splitlines()) == 1 and "hunter2" not in said


def test_settings_that_are_right_are_read(settings_of):
    """Each wrong value above fails by itself, not by how the module is read here."""
    found = settings_of(MUSTER_HTTPS="1", MUSTER_DB_POOL="3", MUSTER_CLUSTERS='{"lab": {"BACKEND": "a.B"}}')
    assert found.MUSTER_HTTPS and found.CLUSTERS == {"lab": {"OPTIONS": {}, "BACKEND": "a.B"}}
    assert found.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] == 3
