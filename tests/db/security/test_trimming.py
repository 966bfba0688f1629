"""Personal data is deleted when its retention ends; the database protects recent entries of the audit log."""

import importlib
import os
import subprocess
import sys
from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.conf import settings as known
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from accounts import audit, trimming
from accounts.models import AuditEntry, SignIn
from accounts.tasks import trim_accounts
from accounts.trimming import Trimmed, trim

pytestmark = pytest.mark.django_db


def entry(days: float) -> int:
    """Create an entry of so many days ago."""
    made = AuditEntry.objects.create(act="login", at=timezone.now() - timedelta(days=days))
    return made.pk


def acts() -> set[int]:
    return set(AuditEntry.objects.exclude(act="audit.trim").values_list("pk", flat=True))


def test_old_entries_are_deleted_after_the_configured_retention(settings, monkeypatch):
    settings.MUSTER_AUDIT_DAYS = 100
    monkeypatch.setattr(trimming, "AT_ONCE", 2)
    old, young = {entry(days) for days in (101, 150, 400, 99.9 + 1, 4000)}, {entry(days) for days in (0, 89, 99)}
    assert trim(now=timezone.now()).entries == len(old)
    assert acts() == young
    told = AuditEntry.objects.filter(act="audit.trim")
    assert sum(one.after["entries"] for one in told) == len(old) and told.count() == 3
    assert trim(now=timezone.now()).entries == 0


def test_entries_are_kept_forever_by_default():
    kept = entry(4000)
    assert known.MUSTER_AUDIT_DAYS == 0
    trim_accounts()
    assert acts() == {kept}


def test_the_database_never_lets_entries_younger_than_90_days_be_deleted(settings):
    settings.MUSTER_AUDIT_DAYS = 1
    kept = entry(2)
    with pytest.raises(IntegrityError, match="never changed or deleted"), transaction.atomic():
        trim(now=timezone.now())
    with pytest.raises(IntegrityError), transaction.atomic():
        trim(now=timezone.now() + timedelta(days=1000))  # not even if our clock is wrong
    assert acts() == {kept}


def test_no_other_statement_deletes_or_changes_an_old_entry():
    old = AuditEntry.objects.filter(pk=entry(4000))
    with pytest.raises(IntegrityError, match="never changed or deleted"), transaction.atomic():
        old.delete()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL muster.trims_audit = 'yes'")
        with pytest.raises(IntegrityError), transaction.atomic():
            old.update(act="forged")
    assert old.get().act == "login"


def test_the_permission_to_trim_does_not_outlast_the_trim(settings):
    settings.MUSTER_AUDIT_DAYS = 100
    entry(200)
    with audit.change():
        trim(now=timezone.now())
        kept = AuditEntry.objects.filter(pk=entry(300))
        with pytest.raises(IntegrityError), transaction.atomic():
            kept.delete()
    assert kept.exists()


def test_the_reverse_migration_restores_the_guard():
    steps = importlib.import_module("accounts.migrations.0007_audit_may_be_trimmed")
    first = importlib.import_module("accounts.migrations.0002_scopes_service_accounts_audit")
    body = steps.NEVER.strip().removeprefix("CREATE OR REPLACE ")
    assert body in first.APPEND_ONLY.replace("CREATE FUNCTION", "FUNCTION")
    old = AuditEntry.objects.filter(pk=entry(4000))
    with connection.cursor() as cursor:
        cursor.execute(steps.NEVER)
        cursor.execute("SET LOCAL muster.trims_audit = 'yes'")
        with pytest.raises(IntegrityError), transaction.atomic():
            old.delete()


def test_ended_sessions_and_old_failed_logins_are_deleted(people):
    client = Client()
    client.force_login(people.owner)
    SignIn.objects.create(session_key="over", session_data="", expire_date=timezone.now() - timedelta(hours=1))
    for name in ("eve", "mallory"):
        client.post("/logout")
        Client().post("/login", {"username": name, "password": "wrong"})
    client.force_login(people.owner)
    AccessAttempt.objects.filter(username="eve").update(attempt_time=timezone.now() - timedelta(days=31))
    done = trim(now=timezone.now())
    assert done == Trimmed(sessions=1, failures=1, entries=0)
    assert client.get("/jobs").status_code == 200
    assert AccessAttempt.objects.get().username == "mallory"


def test_trimming_runs_once_a_day():
    (one,) = [one for one in known.CELERY_BEAT_SCHEDULE.values() if one["task"] == trim_accounts.name]
    assert one["schedule"] == 86400


@pytest.mark.parametrize(("days", "is_taken"), [("0", True), ("90", True), ("89", False), ("-1", False)])
def test_a_retention_that_is_too_short_is_refused(days, is_taken):
    start = [sys.executable, "-c", "import controlplane.settings"]
    ended = subprocess.run(start, env={**os.environ, "MUSTER_AUDIT_DAYS": days}, capture_output=True, text=True)
    assert (ended.returncode == 0) is is_taken
    assert is_taken or "MUSTER_AUDIT_DAYS" in ended.stderr
