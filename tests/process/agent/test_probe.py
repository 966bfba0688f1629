"""`agent.pyz --probe`, really run: two processes as the two pods of a check, beside a real server, over TLS too."""

import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from agent.errands import probe
from embedded.ports import free_port
from tests.support import tls

WORD = "muster-check-abc123"


class Door(http.server.BaseHTTPRequestHandler):
    """Refuses agents without a token, as the control plane does."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(401)
        self.send_header("Content-Type", "application/problem+json; charset=utf-8")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def door(pem: Path | None = None) -> Iterator[http.server.HTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.asked = []
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def first(pyz: Path, *, url: str, port: int, ca: str = "", **more: Any) -> Iterator[dict[str, Any]]:
    """Run the first pod's program; yield its answer while it listens. It ends when it is asked to."""
    asked = {"part": "first", "word": WORD, "port": port, "url": url, "ca": ca, "names": ["localhost"], "packages": []}
    with started(pyz, {**asked, **more}) as process:
        yield json.loads(process.stdout.readline())
        assert process.poll() is None, "it goes on listening"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@contextmanager
def started(pyz: Path, asked: Any) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "MUSTER_PROBE": json.dumps(asked)}
    process = subprocess.Popen(
        [sys.executable, str(pyz), "--probe"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def second(pyz: Path, *, port: int, word: str = WORD, seconds: float = 0.0) -> dict[str, Any]:
    asked = {"part": "second", "word": word, "port": port, "peer": "127.0.0.1", "seconds": seconds}
    with started(pyz, asked) as process:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return json.loads(said)["peer"]


def test_the_first_says_what_it_finds_and_the_second_reaches_it(pyz):
    port = free_port()
    with door() as server:
        url = f"http://127.0.0.1:{server.server_port}/muster/"
        packages = ["django", "no-such-distribution"]
        with first(pyz, url=url, port=port, packages=packages) as found:
            assert second(pyz, port=port)["problem"] == ""
            assert second(pyz, port=port)["problem"] == "", "it answers more than once"
            wrong = second(pyz, port=port, word="another-check")
            assert wrong["problem"] == "other" and "something else answers" in wrong["words"]
        assert server.asked == ["/muster/agent/v1/workspace"]
    assert (found["probe"], found["part"], found["port"]["problem"]) == (1, "first", "")
    assert found["python"] == sys.version.split()[0]
    assert found["packages"] == {"django": version("django"), "no-such-distribution": None}
    assert found["names"]["localhost"]["problem"] == ""
    control = found["control"]
    assert (control["status"], control["type"], control["problem"]) == (401, "application/problem+json", "")


def test_nobody_who_listens_is_told_as_such(pyz):
    assert second(pyz, port=free_port(), seconds=1.0)["problem"] == "refused"


def test_a_port_that_another_program_has_is_told(pyz):
    with door() as server:
        url = f"http://127.0.0.1:{server.server_port}"
        asked = {"part": "first", "word": WORD, "port": server.server_port, "url": url, "names": [], "packages": []}
        with started(pyz, asked) as process:
            said, _ = process.communicate(timeout=60)
        assert json.loads(said)["port"]["problem"] == "address" and process.returncode == 0


def test_a_certificate_is_trusted_by_the_authority_that_is_given(pyz, tmp_path):
    ca, pem = tls.authority(tmp_path, "muster")
    other, _ = tls.authority(tmp_path, "other")
    with door(pem) as server:
        url = f"https://127.0.0.1:{server.server_port}"
        assert probe.ask(url, ca.read_text())["status"] == 401
        refused = probe.ask(url, other.read_text())
        assert (refused["status"], refused["problem"]) == (0, "certificate") and "certificate" in refused["words"]
        assert probe.ask(url, "")["problem"] == "certificate"
        with first(pyz, url=url, port=free_port(), ca=ca.read_text()) as found:
            assert found["control"]["status"] == 401
    with door() as server:
        assert probe.ask(f"https://127.0.0.1:{server.server_port}", "")["problem"] == "tls"
    assert probe.ask(f"http://127.0.0.1:{free_port()}", "")["problem"] == "refused"
    assert probe.ask("http://no-such-host.invalid", "")["problem"] in ("name", "timeout")


def test_a_name_service_that_does_not_answer_is_not_waited_for():
    hangs = threading.Event()
    found = probe.bounded(hangs.wait, seconds=0.05)
    hangs.set()
    assert found["problem"] == "timeout"
    assert probe.resolve("no-such-host.invalid")["problem"] in ("name", "timeout")


def test_the_build_of_torch_is_read_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert probe.torch_builds() == {"cuda": "12.8", "hip": ""}
    (package / "version.py").write_text("cuda = (")
    assert probe.torch_builds() == {"cuda": "", "hip": ""}


def test_what_a_module_assigns_is_read_without_running_it():
    source = "import os\nos._exit(1)\na = b = '1'\nc: str = '2'\nd = f()\n(e, f) = 1, 2\ng: int\n"
    assert probe.assigned(source) == {"a": "1", "b": "1", "c": "2"}


@pytest.mark.parametrize("asked", ["", "{}", '{"part": "third"}', "[]"])
def test_a_probe_that_is_not_told_what_to_do_says_so(pyz, asked):
    env = {**os.environ, "MUSTER_PROBE": asked}
    done = subprocess.run([sys.executable, str(pyz), "--probe"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "not told what to do" in done.stderr and done.stdout == ""
