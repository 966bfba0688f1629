"""With MUSTER_EVENT_LOG=stdout, security events are JSON lines without secrets, and no line can be forged."""

import json
import logging
import os
import subprocess
import sys

import httpx
import pytest
from django.db import transaction

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import AuditEntry
from common.telemetry import log_config
from tests.support import site as pages_site
from tests.support.patience import PATIENCE_SECONDS


def line_of(message: str, **extra) -> dict:
    record = logging.LogRecord("axes", logging.WARNING, "x.py", 1, message, (), None)
    record.__dict__.update(extra)
    text = log_config.AsJson().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_every_line_has_the_same_fields():
    found = line_of("login", event={"actor_name": "ada", "after": {"way": "page"}})
    assert (found["level"], found["source"], found["message"]) == ("WARNING", "axes", "login")
    assert found["at"].endswith("Z") and found["after"] == {"way": "page"}


def test_secrets_are_removed_and_newlines_escaped():
    found = line_of("mst_" + "x" * 40 + " \n{}", event={"name": "a\nb", "said": ["password=hunter2hunter2"]})
    assert "xxxx" not in found["message"] and "\\n" in found["message"]
    assert found["name"] == "a\\nb" and found["said"] == ["password=[removed]"]


@pytest.mark.django_db(transaction=True)
def test_only_committed_events_are_logged(monkeypatch):
    told = []
    monkeypatch.setattr(log_config, "event", lambda act, **fields: told.append((act, fields["audit_id"])))
    with transaction.atomic():
        audit.record(AuditAction.LOGOUT, by=None)
        transaction.set_rollback(True)
    with audit.change():
        entry = audit.record(AuditAction.LOGIN, by=None)
        assert told == []
    assert told == [("login", entry.pk)] and AuditEntry.objects.count() == 1


_popen = subprocess.Popen


@pytest.fixture
def visited(people, transactional_db, tmp_path, monkeypatch):
    """`visited("stdout")`: what a server writes to each stream while clients use it."""

    def visit(events: str) -> tuple[list[dict], str]:
        monkeypatch.setenv("MUSTER_EVENT_LOG", events)
        out, err = (tmp_path / f"{events}-{name}" for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            monkeypatch.setattr(
                pages_site.subprocess, "Popen", lambda *a, **k: _popen(*a, **{**k, "stdout": stdout, "stderr": stderr})
            )
            with pages_site.serve() as site:
                site.sign_in("owner")
                sent = {"username": "eve", "password": "a-wrong-password-of-eve"}
                httpx.post(
                    f"{site.url}/api/v1/login",
                    json=sent,
                    headers={"User-Agent": 'evil"}\n'.strip()},
                    timeout=PATIENCE_SECONDS,
                )
                httpx.post(f"{site.url}/login", data=sent, timeout=PATIENCE_SECONDS)  # without the CSRF token
                httpx.get(f"{site.url}/nowhere", timeout=PATIENCE_SECONDS)
        return [json.loads(line) for line in out.read_text().splitlines()], err.read_text()

    return visit


def test_a_real_server_logs_its_events_as_json_lines(visited):
    lines, _ = visited("stdout")
    told = [(one["source"], one["message"]) for one in lines]
    assert ("muster.events", "login") in told and ("muster.events", "login.failed") in told
    login = next(one for one in lines if one["message"] == "login")
    assert (login["actor_name"], login["ip"], login["after"]) == ("owner", "127.0.0.1", {"way": "page"})
    assert login["audit_id"] == AuditEntry.objects.get(act="login").pk
    assert any(source.startswith("axes") and "an unknown name" in text for source, text in told)
    assert not any("eve " in f"{text} " for source, text in told if source.startswith("axes"))
    assert any(one["source"] == "django.security.csrf" and one["status"] == 403 for one in lines)
    assert any(one["source"] == "django.request" and one["status"] == 404 for one in lines)
    assert "password-of-eve" not in str(lines)


def test_without_the_setting_standard_output_stays_empty_and_no_event_is_logged(visited):
    lines, log = visited("off")
    assert lines == []
    assert "muster.events" not in log


def test_an_unknown_value_of_the_setting_is_refused():
    start = [sys.executable, "-c", "import controlplane.settings"]
    ended = subprocess.run(start, env={**os.environ, "MUSTER_EVENT_LOG": "syslog"}, capture_output=True, text=True)
    assert ended.returncode == 1 and "off or stdout" in ended.stderr
