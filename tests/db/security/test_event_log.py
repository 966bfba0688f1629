"""With MUSTER_EVENT_LOG=stdout, security events are JSON lines without secrets, and no line can be forged."""

import json
import logging

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import AuditEntry
from common.telemetry import log_config


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


def test_without_the_setting_nothing_is_written_to_standard_output_and_no_event_is_logged():
    """tests/db/security/test_server_log.py shows a server with it."""
    found = log_config.configuration(level="INFO", events="off")
    assert [name for name, one in found["loggers"].items() if "stdout" in one.get("handlers", ())] == []
    assert found["root"]["handlers"] == ["stderr"] and "stream" not in found["handlers"]["stderr"]
    assert found["loggers"][log_config.EVENTS] == {"handlers": [], "level": "INFO", "propagate": False}
    told = log_config.configuration(level="INFO", events="stdout")
    assert all(told["loggers"][source]["handlers"] == ["stdout"] for source in log_config.SOURCES)


def test_an_unknown_value_of_the_setting_is_refused():
    with pytest.raises(ImproperlyConfigured, match="MUSTER_EVENT_LOG is syslog; it must be off or stdout"):
        log_config.configuration(level="INFO", events="syslog")
