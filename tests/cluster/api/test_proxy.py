"""The rig's API server behind a proxy, under a name that only the proxy can resolve: jobs run as usual."""

import json
from urllib.parse import urlsplit

import pytest

from tests.cluster.api.test_connect import connect
from tests.cluster.conftest import end, run_all
from tests.support.http_proxy import Proxy

ELSEWHERE = "https://muster-rig.invalid:6443"
OF_THE_CERTIFICATE = "kubernetes.default.svc"  # every API server's certificate has it


@pytest.fixture
def proxy(place):
    parts = urlsplit(place.plane.url)
    with Proxy((parts.hostname, parts.port), login="muster:secret") as proxy:
        yield proxy


@pytest.fixture
def behind(proxy):
    """A copy of a kubeconfig that reaches the server through the proxy."""

    def of(source, path):
        said = json.loads(source.read_text())
        way = {
            "server": ELSEWHERE,
            "tls-server-name": OF_THE_CERTIFICATE,
            "proxy-url": f"http://muster:secret@127.0.0.1:{proxy.port}",
        }
        said["clusters"][0]["cluster"] |= way
        path.write_text(json.dumps(said))
        return path

    return of


def test_a_job_runs_and_ends_through_a_proxy_and_under_another_server_name(place, proxy, behind, tmp_path):
    cluster = place.cluster(behind(place.kubeconfig, tmp_path / "behind"))
    run_all(cluster)
    end(cluster)
    assert set(proxy.asked) == {f"CONNECT {urlsplit(ELSEWHERE).netloc} HTTP/1.1"}


def test_the_kubeconfig_written_by_connect_uses_the_same_proxy(place, proxy, behind, tmp_path):
    done = connect(place, tmp_path, kubeconfig=behind(place.plane.kubeconfig, tmp_path / "admin"))
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "gpus.kubeconfig").read_text())["clusters"][0]["cluster"]
    assert (written["tls-server-name"], written["server"]) == (OF_THE_CERTIFICATE, ELSEWHERE)
    assert written["proxy-url"].endswith(f"@127.0.0.1:{proxy.port}") and proxy.asked
