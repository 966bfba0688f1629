"""Which addresses are refused: those of the network around the server, and always the installation's own."""

from ipaddress import ip_network

import pytest
from django.db import connection

from common.addresses import files as object_storage
from common.errors import InvalidInput
from jobs.webhooks import addresses, own_services
from tests.db.webhooks.test_sending import resolve_to

pytestmark = pytest.mark.django_db


def problem(url: str) -> str:
    """Why the URL is refused, "" if it is not."""
    try:
        addresses.reachable(addresses.parse(url))
    except InvalidInput as error:
        (found,) = error.problems
        assert found.field == "url"
        return found.message
    return ""


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1",
        "ff02::1", "ff0e::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:127.0.0.1",
        "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:a00:1::1", "2002:7f00:1::", "::127.0.0.1", "::a00:1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe", "fec0::1", "64:ff9b:1::1",
        "192.0.0.8", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "2620:4f:8000::1", "3fff::1", "5f00::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused_by_whatever_name(monkeypatch, address):
    resolve_to(monkeypatch, address)
    assert "is not a public address" in problem("https://inner.example/hook")
    host = f"[{address}]" if ":" in address else address
    assert problem(f"https://{host}/hook")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"]
)
def test_public_addresses_are_allowed_by_https_alone(monkeypatch, address):
    resolve_to(monkeypatch, address)
    assert problem("https://hooks.example/hook") == ""
    assert "where only https is allowed; write https://" in problem("http://hooks.example/hook")


@pytest.mark.parametrize("spelling", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "localhost", "LOCALHOST."])
def test_other_spellings_of_an_address_of_this_machine_are_refused(spelling):
    assert problem(f"https://{spelling}:9/hook")


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "127.0.0.2", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0"]
)
def test_no_spelling_of_this_machine_leads_to_muster_itself(settings, monkeypatch, host):
    monkeypatch.setenv("MUSTER_LISTEN_PORT", "8123")
    settings.WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8"), ip_network("0.0.0.0/8"), ip_network("::/0")]
    assert "Muster's own pages; enter the address of another program" in problem(f"http://{host}:8123/hook")
    assert problem(f"http://{host}:8124/hook") == ""


def test_one_refused_address_of_several_refuses_the_name(monkeypatch):
    found = [addresses.ip_address(one) for one in ("93.184.216.34", "10.0.0.1")]
    target = addresses.parse("https://both.example/hook")
    assert [bool(addresses.refusal(one, target, own=[])) for one in found] == [False, True]


def test_a_private_network_is_allowed_where_the_setting_names_it(monkeypatch, settings):
    settings.WEBHOOK_NETWORKS = [ip_network("10.20.0.0/16")]
    resolve_to(monkeypatch, "10.20.1.1")
    assert problem("https://chat.example/hook") == problem("http://chat.example/hook") == ""
    resolve_to(monkeypatch, "::ffff:10.20.1.1")
    assert problem("http://chat.example/hook") == ""
    resolve_to(monkeypatch, "10.21.1.1")
    assert "add its network to MUSTER_WEBHOOK_NETWORKS" in problem("https://chat.example/hook")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.com/", "is not a URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("hooks.slack.com/services", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://exa mple.com/", "is not a URL"),
        ("https://example.com/\n", "is not a URL"),
        ("https://example.com/" + "a" * 2000, "is not a URL"),
        ("https://example.com:99999/", "is not a URL"),
        ("https://me:pass-word@example.com/", "holds a user name or password"),
        ("https://example.com/#part", "has a part behind #"),
    ],
)
def test_what_is_no_plain_url_is_refused_without_its_secrets(url, words):
    said = problem(url)
    assert words in said and "pass-word" not in said


def test_a_name_without_addresses_is_refused():
    assert "nowhere.invalid cannot be looked up" in problem("https://nowhere.invalid/T0/B0/secret")
    assert "secret" not in problem("https://nowhere.invalid/T0/B0/secret")


@pytest.fixture
def everything(settings, monkeypatch):
    """All networks are allowed, and the installation has services at known places."""
    settings.WEBHOOK_NETWORKS = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", "db.example")
    monkeypatch.setitem(settings.DATABASES["default"], "PORT", "5432")
    settings.REDIS_URL = "redis://:pw@127.0.0.1:6390/0"
    settings.MUSTER_METRICS = "0.0.0.0:9090"
    settings.MUSTER_TRACES = "http://10.0.0.4:4318"
    return settings


def test_the_installations_own_services_are_refused_even_in_allowed_networks(everything, monkeypatch, tmp_path):
    config = tmp_path / "kubeconfig"
    config.write_text("clusters: [{name: a, cluster: {server: 'https://10.0.0.9:6443'}}]")
    options = {"KUBECONFIG": str(config), "CONTROL_URL": "http://10.0.0.7:8000"}
    everything.CLUSTERS = {"gpus": {"BACKEND": "x", "OPTIONS": options}}
    new, old = (object_storage(f"s3://bucket?endpoint=http://{one}") for one in ("10.0.0.8:9000", "10.0.0.6:9001"))
    moving = {"BACKEND": "common.files.file_store.MovingStorage", "OPTIONS": {"new": new, "old": old}}
    everything.STORAGES = {**everything.STORAGES, "default": moving}
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    resolve_to(monkeypatch, "10.0.0.5")
    for url, what in [
        ("http://10.0.0.5:5432/", "Muster's database"),
        ("http://[::ffff:10.0.0.5]:5432/", "Muster's database"),
        ("http://127.0.0.1:6390/", "Muster's Redis"),
        ("http://127.0.0.2:6390/", "Muster's Redis"),
        ("http://0.0.0.0:9090/metrics", "Muster's metrics"),
        ("http://127.0.0.1:9090/metrics", "Muster's metrics"),
        ("http://10.0.0.4:4318/v1/traces", "Muster's collector of traces"),
        ("http://10.0.0.8:9000/bucket", "Muster's object storage"),
        ("http://10.0.0.6:9001/bucket", "Muster's object storage"),
        ("https://10.0.0.9:6443/api", "the API server of a cluster"),
        ("https://10.96.0.1/api", "the API server of a cluster"),
        ("http://10.0.0.7:8000/", "Muster itself"),
    ]:
        assert what in problem(url), url
    assert problem("http://10.0.0.5:5433/") == problem("http://10.0.0.9:6444/") == ""


@pytest.mark.parametrize(
    ("host", "port", "places"),
    [
        ("", "", [("localhost", 5432)]),
        ("db", "5433", [("db", 5433)]),
        ("a,b", "5433", [("a", 5433), ("b", 5433)]),
        ("a,b,c", "5433,,5435", [("a", 5433), ("b", 5432), ("c", 5435)]),
        ("/run/postgresql,b", "5433,5434", [("b", 5434)]),
    ],
)
def test_each_host_of_a_list_has_its_own_port_as_libpq_reads_it(settings, monkeypatch, host, port, places):
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", host)
    monkeypatch.setitem(settings.DATABASES["default"], "PORT", port)
    found = [one for one in own_services.services() if one.what == "Muster's database"]
    assert [(one.host, one.port) for one in found] == places


def test_another_address_of_this_machine_leads_to_the_same_services(everything, monkeypatch):
    """Redis listens at 127.0.0.1; the machine's other addresses are refused at its port as well."""
    resolve_to(monkeypatch, "10.0.0.5")
    assert own_services.is_local("127.0.0.1") and not own_services.is_local("10.254.254.254")
    assert "Muster's Redis" in problem("http://[::1]:6390/") or not own_services.is_local("::1")


def test_the_servers_of_this_run_are_refused(settings):
    """Those that the tests really use, by the settings as they are."""
    settings.WEBHOOK_NETWORKS = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    for one in own_services.services():
        assert problem(f"http://{one.host}:{one.port}/"), one
    host, port = connection.settings_dict["HOST"], connection.settings_dict["PORT"]
    assert host.startswith("/") or problem(f"http://{host}:{port}/")


def test_muster_itself_is_refused_by_name_and_other_sites_behind_its_proxy_are_not(everything, monkeypatch):
    everything.PUBLIC_URL, everything.ALLOWED_HOSTS = (
        "https://muster.example",
        ["muster.example", "localhost", ".example"],
    )
    everything.CSRF_TRUSTED_ORIGINS = ["https://muster.example:8443"]
    resolve_to(monkeypatch, "10.0.0.3")
    for url in ("https://muster.example/", "https://MUSTER.example.:8443/x", "http://localhost:8000/api"):
        assert "Muster's own pages" in problem(url), url
    assert problem("https://chat.example/hooks") == problem("http://localhost:9999/") == ""


@pytest.mark.parametrize("text", ["", "{", "clusters: 7", "clusters: [{cluster: {}}]", "- 1"])
def test_a_kubeconfig_that_cannot_be_read_names_no_server(tmp_path, text):
    (tmp_path / "config").write_text(text)
    assert own_services.endpoints.urls({"KUBECONFIG": str(tmp_path / "config")}) == []
