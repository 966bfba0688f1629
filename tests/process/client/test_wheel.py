"""The wheel that a server offers: pip installs it by its address, and its command works against that server."""

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import httpx
import pytest
from django.test import Client as Browser
from muster.http.version import VERSION

from common import client_wheel
from tests.support.site import serve

ROOT = Path(__file__).resolve().parents[3]


def test_the_packages_version_is_the_clients():
    assert tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]["version"] == VERSION
    assert client_wheel.wheel().name == f"muster_client-{VERSION}-py3-none-any.whl"


def test_it_is_the_same_in_every_process():
    made = "from common.client_wheel import wheel; print(wheel().digest)"
    done = subprocess.run([sys.executable, "-c", made], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == client_wheel.wheel().digest


@pytest.mark.parametrize("how", ["by its address", pytest.param("by the page of links", marks=pytest.mark.full)])
def test_pip_installs_it_and_its_command_reaches_the_server(transactional_db, people, tmp_path, how):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv/bin/python"
    with serve() as site:
        words = {
            "by its address": [f"{site.url}/client/{client_wheel.wheel().name}"],
            "by the page of links": [
                "--find-links",
                f"{site.url}/client/",
                "--trusted-host",
                "127.0.0.1",
                "muster-client",
            ],
        }[how]
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-input",
            "--no-deps",
            "--no-index",
            *words,
        ]
        subprocess.run(pip, check=True, cwd=tmp_path)
        # Its five dependencies come from this environment: tests fetch nothing.
        site_packages = next((tmp_path / "venv/lib").glob("python3*/site-packages"))
        (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MUSTER_PASSWORD": "owner-has-a-password"}
        token = httpx.post(
            f"{site.url}/api/v1/login", json={"username": "owner", "password": "owner-has-a-password", "name": "x"}
        ).json()["token"]
        env |= {"MUSTER_URL": site.url, "MUSTER_TOKEN": token}
        command = [str(tmp_path / "venv/bin/muster"), "me"]
        said = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        where = subprocess.run(
            [str(python), "-c", "import muster; print(muster.__file__)"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "owner" in said and str(tmp_path) in where.stdout


def test_another_version_is_not_there_and_the_page_names_the_right_one(db):
    client = Browser()
    assert client.get("/client/muster_client-9.9.9-py3-none-any.whl").status_code == 404
    page = client.get("/client/").text
    assert f"pip install http://testserver/client/{client_wheel.wheel().name}" in page and "#sha256=" in page
