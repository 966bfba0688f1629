"""The password that bin/demo prints: full access from this machine; once reachable by others, it must be changed first."""

import httpx
import pytest

from embedded.installation import Installation
from tests.process.embedded.test_installation import demo

OWN = "four unrelated brown llamas"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "data"
    assert demo(tmp_path / "data", "--reset", "--yes").returncode == 0  # removes what it keeps outside that folder


def sign_in(muster: Installation, password: str) -> httpx.Client:
    client = httpx.Client(base_url=muster.url, timeout=60)
    client.get("/login")
    post(client, "/login", username="admin", password=password)
    return client


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data={**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"]})


def test_it_must_be_changed_once_other_hosts_are_allowed(folder):
    """The same data folder is served first to this machine only, then to other hosts, as with --host."""
    with Installation(folder) as muster:
        password = muster.password
        assert sign_in(muster, password).get("/jobs").status_code == 200
    with Installation(folder, environ={"MUSTER_ALLOWED_HOSTS": "127.0.0.1,muster.example"}) as muster:
        client = sign_in(muster, password)
        assert client.get("/jobs").headers["Location"] == "/account/password"
        sent = {"username": "admin", "password": password, "name": "x"}
        assert httpx.post(f"{muster.url}/api/v1/login", json=sent, timeout=60).status_code == 403
        post(client, "/account/password", old_password=password, new_password1=OWN, new_password2=OWN)
        assert client.get("/jobs").status_code == 200
        given = demo(folder, "--reset-password").stdout.split()[-1]  # again a password set by an administrator
        assert sign_in(muster, given).get("/jobs").headers["Location"] == "/account/password"
        token = {"Authorization": f"Bearer {muster.token}"}  # bin/muster keeps working
        assert httpx.get(f"{muster.url}/api/v1/me", headers=token, timeout=60).status_code == 200
