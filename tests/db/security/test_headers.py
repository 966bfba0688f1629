"""The security headers of every answer: pages, API, refusals and static files alike."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

from accounts.models import Token
from common.startup_checks import announce, exposure
from tests.db.security import routes
from tests.db.security.routes import API, PAGE, TABLE, AccessFixture
from tests.support import seed

ROOT = Path(__file__).resolve().parents[3]
ADDRESSES = [
    "/login",
    "/jobs",
    "/healthz",
    "/nowhere",
    "/api/v1/jobs",
    "/api/v1/nowhere",
    "/static/muster.css",
    "/live",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_answer_has_restrictive_headers(client, people, address):
    headers = client.get(address).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]


@pytest.mark.parametrize("address", ["/jobs", "/api/v1/jobs", "/queues", "/login"])
def test_no_other_origin_is_allowed(as_, people, address):
    answer = as_(people.owner).get(address, headers={"Origin": "https://elsewhere.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/me", "/queues", "/account/password"])
def test_answers_for_one_user_are_not_cached_for_the_next(as_, people, address):
    said = as_(people.owner).get(address).headers["Cache-Control"]
    assert "no-store" in said or ("private" in said and "no-cache" in said)


def test_browsers_store_no_page_and_no_answer_of_the_api(as_, lab, people, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    world, client = AccessFixture(lab, people), as_(people.admin)
    shown = [name for name, one in TABLE.items() if one.door in (PAGE, API) and "GET" in one.rules]
    assert len(shown) > 40
    for pattern in shown:
        answer = client.get(routes.address(pattern, world))
        assert answer.status_code == 200, pattern
        assert "no-store" in answer.headers["Cache-Control"], pattern


def test_programs_may_cache_an_answer_and_revalidate_it(people):
    headers = {"Authorization": f"Bearer {Token.issue(people.owner, 'x')[1]}"}
    first = Client().get("/api/v1/teams", headers=headers)
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = Client().get("/api/v1/teams", headers={**headers, "If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304


def test_every_answer_with_a_body_has_its_content_type(as_, people, lab):
    job = seed.running(lab, steps=5)
    owner = as_(people.owner)
    for address in ["/jobs", f"/jobs/{job.pk}", f"/jobs/{job.pk}/logs.txt", "/queues", "/account/password", "/nowhere"]:
        assert "charset=utf-8" in owner.get(address).headers["Content-Type"].lower(), address
    for address in ["/api/v1/jobs", "/api/v1/me", "/healthz"]:
        assert owner.get(address).headers["Content-Type"].startswith("application/json"), address
    assert owner.get("/api/v1/nowhere").headers["Content-Type"] == "application/problem+json"


def test_logging_out_clears_the_cache_of_the_browser(as_, people):
    assert as_(people.owner).post("/logout").headers["Clear-Site-Data"] == '"cache"'


def test_with_https_strict_transport_security_is_sent(client, db):
    assert not client.get("/login").has_header("Strict-Transport-Security")
    with override_settings(MUSTER_HTTPS=True):
        said = client.get("/login").headers["Strict-Transport-Security"]
    assert "max-age=31536000" in said and "includeSubDomains" in said


def settings_with(monkeypatch, **environment: str) -> dict[str, Any]:
    """The settings as the module reads them with this environment, without replacing those of this process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(ROOT / "controlplane/settings.py"), run_name="controlplane.other_settings")


def test_with_https_cookies_are_bound_to_the_host(monkeypatch):
    found = settings_with(monkeypatch, MUSTER_HTTPS="1", MUSTER_ALLOWED_HOSTS="m.example")
    assert found["SESSION_COOKIE_NAME"] == "__Host-muster-session" and found["CSRF_COOKIE_NAME"] == "__Host-muster-csrf"
    assert found["SESSION_COOKIE_SECURE"] is found["CSRF_COOKIE_SECURE"] is found["SESSION_COOKIE_HTTPONLY"] is True
    assert found["SESSION_COOKIE_SAMESITE"] == "Lax" and found["DEBUG"] is False


def exposed(monkeypatch, settings, **environment: str) -> list[str]:
    found = settings_with(monkeypatch, **environment)
    for name in ("ALLOWED_HOSTS", "MUSTER_HTTPS", "DEBUG"):
        setattr(settings, name, found[name])
    return [one.id for one in exposure()]


@pytest.mark.parametrize("hosts", ["m.example", "*"])
def test_serving_other_hosts_without_https_is_a_warning(monkeypatch, settings, hosts):
    assert exposed(monkeypatch, settings, MUSTER_ALLOWED_HOSTS=hosts) == ["muster.W001"]
    assert exposed(monkeypatch, settings, MUSTER_ALLOWED_HOSTS=hosts, MUSTER_DEBUG="1") == [
        "muster.W001",
        "muster.E001",
    ]
    assert exposed(monkeypatch, settings, MUSTER_ALLOWED_HOSTS=hosts, MUSTER_DEBUG="0", MUSTER_HTTPS="1") == []


def test_serving_only_this_machine_is_no_warning(monkeypatch, settings):
    assert exposed(monkeypatch, settings, MUSTER_ALLOWED_HOSTS="127.0.0.1,localhost,[::1]") == []


def test_the_web_process_warns_at_startup_and_refuses_debug_for_other_hosts():
    """One real start, since the import itself must do it; the warning comes first."""
    start = [sys.executable, "-c", "import controlplane.asgi"]
    exposed = {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "MUSTER_ALLOWED_HOSTS": "m.example",
        "MUSTER_DEBUG": "1",
    }
    refused = subprocess.run(start, env={**os.environ, **exposed}, capture_output=True, text=True)
    assert "!!!!!!!!" in refused.stderr and "without HTTPS" in refused.stderr
    assert refused.returncode == 1 and "MUSTER_DEBUG" in refused.stderr.splitlines()[-1]


def test_a_warning_alone_does_not_prevent_the_start(settings, caplog):
    settings.ALLOWED_HOSTS, settings.MUSTER_HTTPS, settings.DEBUG = ["m.example"], False, False
    announce()
    assert "without HTTPS" in caplog.text


def test_djangos_deployment_check_passes():
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings", "MUSTER_HTTPS": "1"}
    environment |= {"MUSTER_SECRET_KEY": "a-long-key-of-many-different-letters-0123456789-abcdefghijk-XYZ"}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_server_error_reveals_no_internals(as_, people, monkeypatch):
    import jobs.web.queues as page
    from jobs.api import queues

    def boom(*args, **kwargs):
        raise RuntimeError("the secret inside is 12345")

    monkeypatch.setattr(page, "usages", boom)
    monkeypatch.setattr(queues, "with_use", boom)
    client = Client(raise_request_exception=False)
    client.force_login(people.owner)
    for address in ("/queues", "/api/v1/queues"):
        answer = client.get(address)
        assert answer.status_code == 500
        assert "12345" not in answer.text and "Traceback" not in answer.text and "RuntimeError" not in answer.text
    assert client.get("/api/v1/queues").headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "address",
    [
        "/nowhere",
        "/admin",
        "/__debug__/",
        "/.git/config",
        "/files/workspaces/1.tar.gz",
        "/media/",
        "/metrics",
        "/static/../manage.py",
        "/static/",
    ],
)
def test_debug_admin_and_file_paths_do_not_exist(client, db, address):
    answer = client.get(address)
    assert answer.status_code == 404
    assert "urlpatterns" not in answer.text and "Traceback" not in answer.text
