"""The password that bin/demo prints: good for all on this machine alone, and for one page once others are answered."""

import httpx
import pytest

from embedded.installation import Installation
from tests.process.embedded.test_installation import demo

OWN = "four unrelated brown llamas"


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "data"
    assert demo(tmp_path / "data", "--reset", "--yes").returncode == 0  # what it keeps outside of that folder


def sign_in(muster: Installation, password: str) -> httpx.Client:
    client = httpx.Client(base_url=muster.url, timeout=60)
    client.get("/login")
    post(client, "/login", username="admin", password=password)
    return client


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data={**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"]})


def test_once_others_are_answered_it_has_to_be_changed(folder):
    """The same data: first for this machine, then for others, as with --host."""
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
        given = demo(folder, "--reset-password").stdout.split()[-1]  # again from somebody else
        assert sign_in(muster, given).get("/jobs").headers["Location"] == "/account/password"
        token = {"Authorization": f"Bearer {muster.token}"}  # bin/muster goes on
        assert httpx.get(f"{muster.url}/api/v1/me", headers=token, timeout=60).status_code == 200
