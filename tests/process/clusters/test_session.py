"""Connections to an API server as a kubeconfig configures them, against a server and a proxy of the test."""

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import aclosing

import pytest
from kubernetes.aio.config import incluster_config
from prometheus_client import REGISTRY

from common.errors import Unreachable
from jobs.clusters.kubernetes.api import client
from jobs.clusters.kubernetes.api.client import Api
from jobs.clusters.kubernetes.api.session import open_session
from jobs.clusters.kubernetes.api.watch_batching import Pause
from jobs.clusters.kubernetes.build.options import ApiAccess
from tests.process.clusters.api_server import NAME, ApiServer
from tests.support.http_proxy import Proxy

ELSEWHERE = f"https://{NAME}:6443"  # a name that does not resolve here: reachable only through the proxy


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server(tmp_path):
    server = ApiServer(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(server):
    with Proxy(("127.0.0.1", server.port)) as proxy:
        yield proxy


@pytest.fixture
def api(server, tmp_path):
    """Return a function that makes an Api from a kubeconfig with these fields of the cluster and the user."""
    made = []

    def of(user: dict | None = None, **cluster) -> Api:
        path = tmp_path / f"{len(made)}.kubeconfig"
        there = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.ca)}
        there |= {name.replace("_", "-"): value for name, value in cluster.items()}
        content = {
            "clusters": [{"name": "c", "cluster": {name: value for name, value in there.items() if value is not None}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(content))
        made.append(Api(ApiAccess(str(path))))
        return made[-1]

    yield of
    for one in made:
        client.run(one.close(), 10)


def ask(api: Api, path: str = "api/v1/pods"):
    return client.run(api.call("GET", path), 20)


def refusal(api: Api) -> str:
    with pytest.raises(Unreachable) as caught:
        ask(api)
    return str(caught.value)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_requests_are_timed_by_what_the_server_answered(api, server):
    def count(status: str) -> float:
        return REGISTRY.get_sample_value("muster_cluster_call_seconds_count", {"verb": "GET", "status": status}) or 0

    before = count("200"), count("401")
    assert ask(api({"token": "t"}, tls_server_name=NAME)).status == 200
    server.token = "another"
    assert ask(api({"token": "t"}, tls_server_name=NAME)).status == 401
    assert count("200") == before[0] + 1 and count("401") > before[1]  # a refused token is read once more


# -- proxy-url


def test_requests_go_through_the_proxy_and_share_one_tunnel(api, server, proxy):
    through = api({"token": "t"}, server=ELSEWHERE, proxy_url=proxy.url)
    for number in range(3):
        assert ask(through, f"api/v1/pods/{number}").status == 200
    assert proxy.asked == [f"CONNECT {NAME}:6443 HTTP/1.1"]
    assert [one.path for one in server.seen] == [f"/api/v1/pods/{number}" for number in range(3)]
    assert server.seen[0].headers["Authorization"] == "Bearer t"


def test_a_proxy_gets_its_password_and_the_server_does_not(api, server, proxy):
    proxy.login = "muster:p@ss w"
    through = api(server=ELSEWHERE, proxy_url=f"http://muster:p%40ss%20w@127.0.0.1:{proxy.port}")
    assert ask(through).status == 200
    assert "Proxy-Authorization" not in server.seen[0].headers


def test_a_proxy_that_refuses_the_password_is_named_without_it(api, server, proxy):
    proxy.login = "muster:right"
    said = refusal(api(server=ELSEWHERE, proxy_url=f"http://muster:wrong-one@127.0.0.1:{proxy.port}"))
    assert f"the proxy {proxy.url} refuses the connection: 407" in said
    assert "wrong-one" not in said and server.seen == []


@pytest.mark.parametrize("host", ["127.0.0.1", "proxy.invalid"])
def test_an_unreachable_proxy_is_named_without_its_password(api, host):
    port = unused_port()
    said = refusal(api(server=ELSEWHERE, proxy_url=f"http://muster:secret@{host}:{port}"))
    assert f"the proxy http://{host}:{port} cannot be reached" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("socks5://muster:secret@proxy:1080", "socks5:// is not supported"),
        ("https://muster:secret@proxy:3129", "https:// is not supported"),
        ("http://muster:secret@proxy:port", "is not valid"),
        ("http://:3128", "must be like http://proxy.example:3128"),
    ],
)
def test_an_unsupported_proxy_is_refused_before_any_request(api, address, words):
    said = refusal(api(server=ELSEWHERE, proxy_url=address))
    assert words in said and "secret" not in said


def test_a_silent_proxy_does_not_block_a_watch_forever(api, proxy):
    proxy.is_silent = True
    through = api(server=ELSEWHERE, proxy_url=proxy.url)
    with pytest.raises(Unreachable, match=f"through the proxy {proxy.url}"):
        client.run(_lines(through, silence_seconds=0.2), 20)
    assert proxy.asked


# -- the proxy of the environment


def test_the_environments_proxy_is_used_if_the_kubeconfig_has_none(api, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")
    assert ask(api(server=ELSEWHERE)).status == 200
    assert proxy.asked == [f"CONNECT {NAME}:6443 HTTP/1.1"]


@pytest.mark.parametrize(
    ("address", "set_by_kubeconfig", "without", "chosen"),
    [
        ("https://api.example", None, "", "http://env:1"),
        ("https://api.example", "http://own:2", "*", "http://own:2"),
        ("https://api.example", None, "other.example,.example", None),
        ("https://api.example:6443", None, "api.example", None),
        ("https://10.96.0.1", None, "10.0.0.0/8", None),
        ("https://10.96.0.1", None, "192.168.0.0/16", "http://env:1"),
        ("https://127.0.0.1:6443", None, "", None),
        ("https://[::1]:6443", None, "", None),
        ("https://localhost:6443", None, "", None),
        ("http://api.example", None, "", "http://plain:3"),
    ],
)
def test_which_proxy_is_chosen(api, monkeypatch, address, set_by_kubeconfig, without, chosen):
    monkeypatch.setenv("HTTPS_PROXY", "http://env:1")
    monkeypatch.setenv("http_proxy", "http://plain:3")
    monkeypatch.setenv("NO_PROXY", without)
    access = api(server=address, proxy_url=set_by_kubeconfig).access

    async def choose():
        session = await open_session(access)
        await session.close()
        return session.configuration.proxy

    assert client.run(choose(), 10) == chosen


# -- TLS


def test_a_certificate_for_tls_server_name_is_accepted(api, server):
    assert ask(api(tls_server_name=NAME)).status == 200
    assert server.names == [NAME]


def test_a_certificate_with_another_name_is_refused_naming_tls_server_name(api, server):
    said = refusal(api())
    assert "not valid for '127.0.0.1'" in said and "tls-server-name in the kubeconfig" in said
    assert server.seen == []


def test_a_wrong_tls_server_name_is_refused(api, server):
    said = refusal(api(tls_server_name="other.internal"))
    assert "not valid for 'other.internal'" in said
    assert server.seen == [] and server.names == ["other.internal"]


def test_a_certificate_of_an_unknown_authority_is_refused_without_that_hint(api, server, tmp_path):
    (tmp_path / "other").mkdir()
    other = ApiServer(tmp_path / "other")
    other.server_close()
    said = refusal(api(tls_server_name=NAME, certificate_authority=str(other.ca)))
    assert "is not accepted" in said and "tls-server-name" not in said


def test_insecure_skip_tls_verify_accepts_any_certificate(api):
    assert ask(api(certificate_authority=None, insecure_skip_tls_verify=True)).status == 200


def test_an_authority_and_a_client_certificate_can_be_inline_in_the_kubeconfig(api, server):
    server.context.verify_mode = ssl.CERT_REQUIRED
    server.context.load_verify_locations(server.ca)
    encoded = base64.b64encode(server.pem.read_bytes()).decode()
    user = {"client-certificate-data": encoded, "client-key-data": encoded}
    authority = base64.b64encode(server.ca.read_bytes()).decode()
    fields = {"certificate_authority": None, "certificate_authority_data": authority, "tls_server_name": NAME}
    assert ask(api(user, **fields)).status == 200
    assert "the cluster does not answer" in refusal(api(**fields))


# -- both, and a watch


async def _lines(api: Api, *, silence_seconds: float = 20.0, rest: Pause | None = None) -> list[bytes]:
    lines = api.lines("watched", params={"watch": "1"}, silence_seconds=silence_seconds, rest=rest)
    async with aclosing(lines):
        return [line async for line in lines]


def test_a_watch_through_a_proxy_to_a_server_of_another_name(api, server, proxy):
    named = api(server="https://10.1.2.3:6443", tls_server_name=NAME, proxy_url=proxy.url)
    assert client.run(_lines(named), 20) == [b'{"a": 1}', b'{"b": 2}']
    assert ask(named).status == 200
    # watches have connections of their own
    assert proxy.asked == ["CONNECT 10.1.2.3:6443 HTTP/1.1"] * 2 and server.names == [NAME] * 2


def test_a_watch_through_a_proxy_can_rest(api, server, proxy):
    """A rest sets a socket option, which needs the socket of the tunnel."""
    rested = []

    async def rest(size: int) -> None:
        rested.append(size)
        server.goes_on.set()

    server.goes_on.clear()
    named = api(server=ELSEWHERE, proxy_url=proxy.url)
    assert client.run(_lines(named, rest=rest), 20) == [b'{"a": 1}', b'{"b": 2}']
    assert rested


def test_a_wrong_server_name_is_refused_through_a_proxy_too(api, server, proxy):
    said = refusal(api(server=ELSEWHERE, tls_server_name="other", proxy_url=proxy.url))
    assert "not valid for 'other'" in said and f"through the proxy {proxy.url}" in said
    assert server.seen == []


# -- credentials


class Plugin:
    """An exec plug-in that prints the token in a file and records each run."""

    def __init__(self, folder):
        self.token, self.runs, script = folder / "token", folder / "runs", folder / "plugin.sh"
        said = '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "\'$(cat %s)\'"}}'
        version = "client.authentication.k8s.io/v1"
        script.write_text(f"echo ran >> {self.runs}\nsleep 0.2\ntest -s {self.token} || exit 3\n")
        script.write_text(script.read_text() + f"echo '{said % (version, self.token)}'\n")
        self.user = {"exec": {"apiVersion": version, "command": "sh", "args": [str(script)]}}

    @property
    def count(self) -> int:
        return len(self.runs.read_text().split()) if self.runs.exists() else 0


@pytest.fixture
def plugin(tmp_path):
    plugin = Plugin(tmp_path)
    plugin.token.write_text("first")
    return plugin


async def ask_at_once(api: Api, count: int) -> list:
    return await asyncio.gather(*(api.call("GET", f"{number}") for number in range(count)), return_exceptions=True)


def test_an_expired_credential_is_renewed_once_for_concurrent_calls(api, server, plugin):
    server.token = "first"
    named = api(plugin.user, tls_server_name=NAME)
    assert {one.status for one in client.run(ask_at_once(named, 40), 60)} == {200}
    assert plugin.count == 1
    plugin.token.write_text("second")
    server.token = "second"
    assert {one.status for one in client.run(ask_at_once(named, 40), 60)} == {200}
    assert plugin.count == 2


def test_a_failing_plug_in_runs_once_and_no_call_is_sent_without_credentials(api, server, plugin):
    plugin.token.write_text("")
    named = api(plugin.user, tls_server_name=NAME)
    answers = client.run(ask_at_once(named, 20), 60)
    assert {type(one) for one in answers} == {Unreachable} and "exec plug-in gave no credentials" in str(answers[0])
    assert (plugin.count, server.seen) == (1, [])
    plugin.token.write_text("first")
    assert ask(named).status == 200


def test_a_cancelled_call_does_not_cancel_the_renewal_for_others(api, plugin):
    named = api(plugin.user, tls_server_name=NAME)

    async def scene():
        impatient = asyncio.create_task(named.call("GET", "a"))
        patient = asyncio.create_task(named.call("GET", "b"))
        await asyncio.sleep(0.05)
        impatient.cancel()
        return (await patient).status

    assert client.run(scene(), 20) == 200
    assert plugin.count == 1


def test_a_rotated_token_file_is_read_again(api, server, tmp_path):
    path = tmp_path / "token"
    named = api({"tokenFile": str(path)}, tls_server_name=NAME)
    for token in ("first", "second", "third"):
        path.write_text(f"{token}\n")  # the file ends with a newline, which is not allowed in a header
        server.token = token
        assert ask(named).status == 200
    assert len(server.seen) == 1 + 2 + 2


def test_an_empty_token_file_is_an_error(api, server, tmp_path):
    path = tmp_path / "token"
    path.write_text("")
    assert "tokenFile is empty" in refusal(api({"tokenFile": str(path)}, tls_server_name=NAME))
    assert server.seen == []


@pytest.fixture
def service_account(server, tmp_path, monkeypatch):
    """Provide what a pod has: the address in its environment, and two files."""
    path = tmp_path / "sa-token"
    path.write_text("first")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(path))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(server.ca))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", NAME)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return path


def test_the_token_of_a_pods_service_account_is_read_again(server, proxy, service_account, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    inside = Api(ApiAccess())
    for token in ("first", "second"):
        service_account.write_text(token)
        server.token = token
        assert ask(inside).status == 200
    client.run(inside.close(), 10)


def test_a_missing_service_account_token_is_reported(service_account):
    service_account.unlink()
    assert "the service account of this pod cannot be used" in refusal(Api(ApiAccess()))


ASKED_ONCE = """
import sys
from jobs.clusters.kubernetes.api import client
from jobs.clusters.kubernetes.build.options import ApiAccess
api = client.Api(ApiAccess(sys.argv[1]))
print(client.run(api.call("GET", "readyz"), 10).status)
"""


def test_a_process_that_ends_with_a_connection_says_nothing_about_it(api):
    """aiohttp would report the connection as not closed, at a time when logging fails with a trace."""
    words = [sys.executable, "-c", ASKED_ONCE, api(tls_server_name=NAME).access.kubeconfig]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("200\n", "", 0)
