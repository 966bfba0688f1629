"""bin/advisories with a vulnerability database that the test serves: the real tool and the real lock file."""

import json
import re
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "bin/advisories"
needs_tool = pytest.mark.skipif(
    subprocess.run([TOOL, "--ready"], capture_output=True).returncode != 0,
    reason="pip-audit is not installed here: bin/advisories --version installs it",
)


def pinned() -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", (ROOT / "requirements/dev.lock").read_text(), re.M))


def hole(name: str) -> dict:
    """A vulnerability in the schema of the Open Source Vulnerability database."""
    affected = {"package": {"name": name, "ecosystem": "PyPI"}, "versions": [pinned()[name]], "ranges": []}
    return {"id": "PYSEC-2099-1", "aliases": [], "details": "a hole", "summary": "a hole", "affected": [affected]}


@contextmanager
def database(*holes: str, mute: str = ""):
    """Serves these vulnerabilities, and fails for `mute`. Yields its URL and the set of queried pins."""
    asked = set()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = query["package"]["name"]
            asked.add((name, query["version"]))
            body = json.dumps({"vulns": [hole(name)]} if name in holes else {}).encode()
            self.send_response(500 if name == mute else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query", asked
    finally:
        server.shutdown()
        server.server_close()


def advisories(url: str) -> subprocess.CompletedProcess:
    command = [TOOL, "-s", "osv", "--osv-url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@needs_tool
def test_a_pin_with_a_known_vulnerability_is_found():
    with database("django") as (url, asked):
        ended = advisories(url)
    assert ended.returncode == 1, ended.stderr
    assert "PYSEC-2099-1" in ended.stdout and "django" in ended.stdout
    assert {name for name, _ in asked} >= {"django", "cryptography", "psycopg", "uvicorn", "torch"}
    assert ("django", pinned()["django"]) in asked


@needs_tool
def test_without_a_vulnerability_it_succeeds():
    with database() as (url, asked):
        ended = advisories(url)
    assert ended.returncode == 0, ended.stderr
    elsewhere = re.findall(r"^([a-z0-9][\w.-]*)==\S+ ;", (ROOT / "requirements/dev.lock").read_text(), re.M)
    assert set(pinned()) - {name for name, _ in asked} <= set(elsewhere)  # pins for other platforms
    assert len(asked) > 100


@needs_tool
def test_an_unavailable_database_is_a_failure():
    with database(mute="celery") as (url, _):
        assert advisories(url).returncode == 1
    assert advisories(url).returncode == 1  # the server has stopped


def test_the_deadlines_for_fixes_are_documented():
    said = (ROOT / "docs/dependencies.md").read_text()
    assert all(f"{days} days" in said for days in (7, 30, 90))
