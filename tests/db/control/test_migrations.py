"""Migrations match the models, and convert existing rows."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from accounts.models import Membership, Role, Team
from jobs.models import Job
from queues.models import Queue
from tests.support.builders import Lab

ROOT = Path(__file__).resolve().parents[3]
BEFORE = [("accounts", "0001_initial")]


def migrate(targets):
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_the_check_for_missing_migrations_needs_no_database():
    """As bin/check runs it: with no database at the address it neither waits nor warns."""
    words = "manage.py makemigrations --check --dry-run --settings tests.settings_without_database"
    env = {**os.environ, "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}
    asked = subprocess.run([sys.executable, *words.split()], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "No changes detected\n", "")
    assert words.partition(" ")[2] in (ROOT / "bin/check").read_text()


@pytest.mark.django_db(transaction=True)
def test_a_migrated_token_keeps_its_rights_and_gets_an_expiry():
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        old = migrate(BEFORE)
        user = old.get_model("accounts", "User").objects.create(username="early")
        old.get_model("accounts", "Token").objects.create(user=user, name="x", prefix="mst_x", digest="d")
        now = migrate(newest).get_model("accounts", "Token").objects.get(name="x")
        assert now.scope == "manage"
        assert timedelta(days=364) < now.expires_at - timezone.now() <= timedelta(days=365)
    finally:
        migrate(newest)


@pytest.mark.django_db(transaction=True)
def test_duplicate_idempotency_keys_of_a_user_are_cleared_by_the_reverse_migration(lab, people):
    newest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    speech = Team.objects.create(name="speech")
    Membership.objects.create(user=people.owner, team=speech, role=Role.MEMBER)
    there = Queue.objects.create(name="speech", team=speech, cluster="local", nominal=8)
    first, other = lab.submit(), Lab(there, people.owner).submit()
    free = lab.submit()
    Job.objects.filter(pk__in=[first.pk, other.pk]).update(idempotency_key="nightly")
    try:
        old = migrate([("jobs", "0007_watched_replicas")]).get_model("jobs", "Job")
        keys = dict(old.objects.values_list("pk", "idempotency_key"))
        assert keys == {first.pk: "nightly", other.pk: None, free.pk: None}
    finally:
        migrate(newest)
