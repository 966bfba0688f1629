"""Libraries from the npm registry: fetched over HTTP from a registry of the test's own, or taken from files."""

import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from controlplane.operations import npm

ROOT = Path(__file__).resolve().parents[3]
CONTENT = b"window.plot = () => {};\n"


def tarball(content: bytes = CONTENT) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        about = tarfile.TarInfo("package/dist/plot.min.js")
        about.size = len(content)
        tar.addfile(about, io.BytesIO(content))
    return data.getvalue()


@pytest.fixture
def packed(tmp_path, monkeypatch):
    data = tarball()
    library = {
        "version": "1.2.3",
        "tarball": "plot/-/plot-1.2.3.tgz",
        "integrity": npm.integrity(data),
        "files": {"package/dist/plot.min.js": "plot.js"},
    }
    listed = tmp_path / "npm.json"
    listed.write_text(json.dumps({"plot": library}))
    monkeypatch.setattr(npm, "LIST", listed)
    return data


@pytest.fixture
def registry():
    """Serve over HTTP; yields (the registry's address, path -> what is served there)."""
    served = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = served.get(self.path)
            self.send_response(200 if content else 404)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/npm/", served
        server.shutdown()
        thread.join()


def home(tmp_path, **more):
    return {"HOME": str(tmp_path), "PATH": "", **more}


def test_listed_files_are_fetched_from_the_registry(tmp_path, packed, registry):
    address, served = registry
    served["/npm/plot/-/plot-1.2.3.tgz"] = packed
    npm.install(tmp_path / "a/b", environ=home(tmp_path, npm_config_registry=address))
    assert (tmp_path / "a/b/plot.js").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "a") == ["b"]


def test_another_content_is_refused_and_leaves_nothing(tmp_path, packed, registry):
    address, served = registry
    served["/npm/plot/-/plot-1.2.3.tgz"] = tarball(b"evil()")
    with pytest.raises(npm.NpmError, match=r"plot 1\.2\.3 is not what controlplane/operations/npm\.json lists"):
        npm.install(tmp_path / "a/b", environ=home(tmp_path, npm_config_registry=address))
    assert not (tmp_path / "a").exists()


def test_a_registry_without_the_library_is_named_as_the_cause(tmp_path, packed, registry):
    with pytest.raises(npm.NpmError, match=r"plot could not be fetched .*404"):
        npm.install(tmp_path / "b", environ=home(tmp_path, npm_config_registry=registry[0]))


def test_the_registry_is_that_of_the_environment_then_of_the_settings_file(tmp_path):
    (tmp_path / ".npmrc").write_text("fund=false\nregistry = https://mirror.test/npm/\n")
    assert npm.registry(home(tmp_path)) == "https://mirror.test/npm"
    assert npm.registry(home(tmp_path, npm_config_registry="https://other.test/")) == "https://other.test"


def test_an_installed_npm_is_asked(tmp_path):
    program = tmp_path / "npm"
    program.write_text("#!/bin/sh\n[ \"$*\" = 'config get registry' ] && echo https://asked.test/\n")
    program.chmod(0o755)
    assert npm.registry(home(tmp_path, PATH=str(tmp_path))) == "https://asked.test"


def test_without_a_registry_the_ways_out_are_named(tmp_path):
    with pytest.raises(npm.NpmError, match=r"set npm_config_registry .*~/\.npmrc"):
        npm.registry(home(tmp_path))


def test_a_tarball_at_hand_needs_no_registry(tmp_path, packed):
    (tmp_path / "plot.tgz").write_bytes(packed)
    npm.install(tmp_path / "b", tarballs=[tmp_path / "plot.tgz"], environ=home(tmp_path))
    assert (tmp_path / "b/plot.js").read_bytes() == CONTENT


def test_a_wrong_tarball_is_refused_with_the_command_that_makes_it(tmp_path, packed):
    (tmp_path / "plot.tgz").write_bytes(tarball(b"old"))
    with pytest.raises(npm.NpmError, match=r"npm pack plot@1\.2\.3"):
        npm.install(tmp_path / "b", tarballs=[tmp_path / "plot.tgz"], environ=home(tmp_path))
    with pytest.raises(npm.NpmError, match="No such file"):
        npm.install(tmp_path / "b", tarballs=[tmp_path / "none.tgz"], environ=home(tmp_path))


def test_a_second_installation_into_the_same_folder_is_no_error(tmp_path, packed):
    (tmp_path / "plot.tgz").write_bytes(packed)
    for _ in range(2):
        npm.install(tmp_path / "b", tarballs=[tmp_path / "plot.tgz"], environ=home(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["b", "npm.json", "plot.tgz"]


def test_this_environment_has_the_listed_files():
    """The browser's tests of charts need them; bin/_env fetches them."""
    here = npm.folder()
    assert here.is_dir(), "run bin/test, which fetches them"
    names = {ours for library in npm.listed().values() for ours in library["files"].values()}
    assert set(os.listdir(here)) == names
    assert hashlib.sha256(npm.LIST.read_bytes()).hexdigest().startswith(here.name)


def test_the_command_says_what_pages_do_without(tmp_path):
    """Its failure is no reason not to install Muster."""
    program = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); from controlplane.operations import npm; "
    program += "npm.folder = lambda: pathlib.Path(sys.argv[2]) / 'x'; sys.exit(npm.main([]))"
    words = [sys.executable, "-c", program, str(ROOT), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=home(tmp_path), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Charts are drawn without their library (uPlot): no npm registry is known")


def test_after_a_failure_commands_do_not_ask_again_for_an_hour(tmp_path, packed, registry, monkeypatch, capsys):
    address, served = registry
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("npm_config_registry", address)
    assert npm.main(["--if-due"]) == 1
    assert "could not be fetched" in capsys.readouterr().err
    served["/npm/plot/-/plot-1.2.3.tgz"] = packed
    assert npm.main(["--if-due"]) == 1 and capsys.readouterr().err == ""
    failed = npm.folder().with_suffix(".failed")
    os.utime(failed, (time.time() - 3700,) * 2)
    assert npm.main(["--if-due"]) == 0 and (npm.folder() / "plot.js").exists()


def test_by_hand_it_is_tried_at_once(tmp_path, packed, registry, monkeypatch):
    address, served = registry
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("npm_config_registry", address)
    assert npm.main(["--if-due"]) == 1
    served["/npm/plot/-/plot-1.2.3.tgz"] = packed
    assert npm.main([]) == 0


def test_an_npm_that_hangs_is_left_alone(tmp_path, monkeypatch):
    program = tmp_path / "npm"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(npm, "SECONDS", 0.2)
    with pytest.raises(npm.NpmError, match="no npm registry is known"):
        npm.registry(home(tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin"))
