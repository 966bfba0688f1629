"""The server's log contains no secrets, and no line of it can be forged."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from accounts.models import AuditEntry, Token
from common.telemetry.redaction import Redacted
from controlplane.celery import app as celery_app
from controlplane.operations import processes
from jobs.core.agent_identity import AgentIdentity
from jobs.ingest import agent_tokens
from tests.conftest import make_user
from tests.support import site as pages_site
from tests.support.patience import PATIENCE_SECONDS

SECRETS = [
    "mst_Zk3v9tq0aBcDeFgHiJkLmNoPqRsTuVwXyZ012345678",
    "Bearer abcdefghijklmnop",
    "password=hunter2hunter2",
    "'password': 'hunter2hunter2'",
    "csrfmiddlewaretoken=hunter2hunter2&x=1",
    "Cookie: sessionid=hunter2hunter2",
    "postgres://muster:hunter2hunter2@db/muster",
    agent_tokens.issue(AgentIdentity(42, "run", 1, "worker", 0)),
]


def redacting() -> tuple[io.StringIO, logging.Handler]:
    """A stream, and a handler that writes to it in the format of the server."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Redacted("%(levelname)s %(name)s %(message)s"))
    return stream, handler


def logged(*args, by: str = "test", **kwargs) -> str:
    stream, handler = redacting()
    log = logging.Logger(by)
    log.addHandler(handler)
    log.warning(*args, **kwargs)
    return stream.getvalue()


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_removed(secret):
    kept = {"hunter2hunter2", secret.split()[-1], secret}
    for text in (
        logged(f"it came with {secret}"),
        logged("it came with %s", secret),
        logged("%r", {"headers": secret}),
    ):
        assert "[removed]" in text
        assert not [one for one in kept if one in text], text


def test_a_secret_in_a_traceback_is_removed():
    try:
        raise ValueError(SECRETS[0])
    except ValueError:
        text = logged("failed", exc_info=True)
    assert "Traceback" in text and SECRETS[0] not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "[" * 200}, 400),
        ("/" + "a" * 9000, {}, 414),
        ("/login?" + "a=&" * 1100, {}, 400),
        ("/api/v1/jobs/" + "9" * 3000, {}, 404),
    ],
)
def test_a_refused_request_writes_few_bytes_to_the_log(path, headers, status, client, monkeypatch):
    """A refused Host wrote 1,504 bytes with a traceback, a long path 4,167: a few requests pushed out older lines."""
    stream, handler = redacting()
    for name in ("django.request", "django.security"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
    assert client.get(path, headers=headers).status_code == status
    text = stream.getvalue()
    assert text and "Traceback" not in text and len(text) < 700


def test_a_server_error_keeps_its_traceback():
    said = "%s: %s", "Internal Server Error", "/" + "a" * 2000
    try:
        raise ValueError("a bug")
    except ValueError:
        text = logged(*said, by="django.request", exc_info=True, extra={"status_code": 500})
    assert "Traceback" in text and "a" * 2000 in text


VALUE = "python train.py --key hunter2hunter2"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("INSERT INTO accounts_team (name, created_at) VALUES (%s, now()), (%s, now())", "UniqueViolation [23505] accounts_team"),
        ("INSERT INTO accounts_team (id, name, created_at) VALUES (NULL, %s, now()), (NULL, %s, now())", "NotNullViolation [23502]"),
        ("SELECT (%s || %s)::int", "InvalidTextRepresentation [22P02]"),
        ("SELECT nothing FROM accounts_team WHERE name IN (%s, %s)", 'UndefinedColumn [42703] column "nothing" does not exist'),
    ],
)  # fmt: skip
def test_values_of_a_failed_statement_are_not_logged(statement, kept):
    """Postgres repeats rows and values in its DETAIL: the command of a job, its environment, a name."""
    with pytest.raises(DatabaseError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, [VALUE, VALUE])
    assert "hunter2" in str(caught.value) or "Undefined" in kept
    later = RuntimeError("again")
    later.__cause__ = caught.value
    for text in (logged("failed", exc_info=caught.value), logged("no: %s", caught.value), logged("x", exc_info=later)):
        assert "hunter2" not in text
        assert kept in text, text


@pytest.fixture
def heard():
    """The log of tasks that run in this process, as the tasks process would write it."""
    stream, handler = redacting()
    log = logging.getLogger("celery.app.trace")
    log.addHandler(handler)
    yield stream
    log.removeHandler(handler)


@pytest.mark.django_db
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_log_of_a_failed_task_contains_no_values(heard, is_wrapped):
    @celery_app.task(name="tests.fails")
    def fails():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT (%s || %s)::int", [VALUE, VALUE])
        except DatabaseError as error:
            if is_wrapped:
                raise RuntimeError(str(error)) from error
            raise

    try:
        fails.apply()
    finally:
        celery_app.tasks.unregister("tests.fails")
    said = heard.getvalue()
    assert "Task tests.fails" in said and "InvalidTextRepresentation" in said
    assert "hunter2" not in said


def test_the_tasks_process_logs_in_the_same_format():
    script = (
        "import logging, django; django.setup(); from controlplane.celery import app; app.log.setup(loglevel='WARNING');"
        "logging.getLogger('celery.worker').warning('came with mst_Zk3v9tq0aBcDeFgHiJkL'); logging.getLogger('jobs').info('quiet')"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings_without_database"}
    said = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stderr
    assert "WARNING celery.worker came with mst_[removed]" in said
    assert "quiet" not in said and said.count("came with") == 1


def test_ordinary_text_is_not_redacted():
    said = "job 42: 3 of 4 ranks running, digest 0123456789abcdef, /jobs/42/logs?rank=3 took 12 ms"
    assert said in logged(said)


def test_a_request_cannot_forge_a_line():
    text = logged("sign-in of %s failed", "eve\n2026-01-01 WARNING all is well\x1b[2J\u2028\u202e")
    assert text.count("\n") == 1
    assert "\\n2026-01-01" in text and "\x1b" not in text and "\u202e" not in text


@dataclass(frozen=True)
class Written:
    events: list[dict]  # of standard output
    log: str
    secrets: list[str]
    audit_id: int  # of the sign-in


@pytest.fixture(scope="module")
def written(django_db_setup, django_db_blocker, tmp_path_factory) -> Written:
    """What a server at its most talkative writes to each stream while clients use it."""
    out, err = (tmp_path_factory.mktemp("log") / name for name in ("out", "err"))
    with (
        django_db_blocker.unblock(),
        pytest.MonkeyPatch.context() as patch,
        out.open("wb") as stdout,
        err.open("wb") as stderr,
    ):
        patch.setattr(
            pages_site.subprocess, "Popen", lambda *a, **k: _popen(*a, **{**k, "stdout": stdout, "stderr": stderr})
        )
        try:
            make_user("owner")
            with pages_site.serve(MUSTER_LOG_LEVEL="DEBUG", MUSTER_EVENT_LOG="stdout") as site:
                secrets = visit(site)
            audit_id = AuditEntry.objects.filter(act="login").earliest("pk").pk
        finally:
            call_command("flush", verbosity=0, interactive=False)
    events = [json.loads(line) for line in out.read_text().splitlines()]
    return Written(events, err.read_text(errors="replace"), secrets, audit_id)


def test_a_real_server_at_debug_level_logs_no_secrets(written):
    """Right and wrong logins, right and wrong tokens and a broken body; then its whole standard error is searched."""
    text = written.log
    assert len(text) > 500, "nothing was logged, so nothing is shown"
    assert "AXES" in text and "an unknown name from 127.0.0.1" in text
    assert not re.search(r"\beve\b", text)  # not a known user: it may be a password typed into the wrong field
    assert "AXES: New login failure by owner from 127.0.0.1" in text
    for secret in written.secrets:
        assert secret not in text


def test_a_real_server_logs_its_events_as_json_lines(written):
    told = [(one["source"], one["message"]) for one in written.events]
    assert ("muster.events", "login") in told and ("muster.events", "login.failed") in told
    login = next(one for one in written.events if one["message"] == "login")
    assert (login["actor_name"], login["ip"], login["after"]) == ("owner", "127.0.0.1", {"way": "page"})
    assert login["audit_id"] == written.audit_id
    assert any(source.startswith("axes") and "an unknown name" in text for source, text in told)
    assert not any("eve " in f"{text} " for source, text in told if source.startswith("axes"))
    assert any(one["source"] == "django.security.csrf" and one["status"] == 403 for one in written.events)
    assert any(one["source"] == "django.request" and one["status"] == 404 for one in written.events)
    for secret in written.secrets:
        assert secret not in str(written.events)


_popen = subprocess.Popen


def visit(site) -> list[str]:
    browser = site.sign_in("owner")
    token = httpx.post(
        f"{site.url}/api/v1/login",
        json={"username": "owner", "password": "owner-has-a-password", "name": "x"},
        timeout=PATIENCE_SECONDS,
    ).json()["token"]
    forged = "mst_" + "f" * 43
    for one in (token, forged):
        httpx.get(f"{site.url}/api/v1/me", headers={"Authorization": f"Bearer {one}"}, timeout=PATIENCE_SECONDS)
        httpx.get(
            f"{site.url}/agent/v1/workspace", headers={"Authorization": f"Bearer {one}"}, timeout=PATIENCE_SECONDS
        )
    sent = {
        "username": "eve",
        "password": "a-wrong-password-of-eve",
        "csrfmiddlewaretoken": browser.cookies["csrftoken"],
    }
    browser.post("/login", data=sent)
    httpx.post(f"{site.url}/login", data=sent, timeout=PATIENCE_SECONDS)
    httpx.post(
        f"{site.url}/api/v1/login",
        json={"username": "eve", "password": "a-wrong-password-of-eve"},
        headers={"User-Agent": 'evil"}'},
        timeout=PATIENCE_SECONDS,
    )
    httpx.get(f"{site.url}/nowhere", timeout=PATIENCE_SECONDS)
    known = {"username": "owner", "password": "a-wrong-password-of-eve"}
    httpx.post(f"{site.url}/api/v1/login", json=known, timeout=PATIENCE_SECONDS)
    httpx.post(
        f"{site.url}/api/v1/jobs", content=b"{", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_SECONDS
    )
    assert Token.objects.filter(user__username="owner").exists() and urlsplit(site.url).port
    cookies = [browser.cookies["sessionid"], browser.cookies["csrftoken"]]
    return [token, forged, "owner-has-a-password", "a-wrong-password-of-eve", *cookies, os.environ["MUSTER_SECRET_KEY"]]


def test_the_server_sends_no_server_header(shared_site):
    assert "server" not in httpx.get(f"{shared_site.url}/healthz", timeout=PATIENCE_SECONDS).headers


def test_the_start_command_hides_the_server_header_and_bounds_heads():
    start = " ".join(processes.WEB)
    assert "controlplane.edge.http_protocol:BoundedHttp" in start
    assert "--no-server-header" in start and "--no-proxy-headers" in start and "--no-access-log" in start
