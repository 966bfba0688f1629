"""Migrations say what the models say, and carry earlier rows over."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

BEFORE = [("accounts", "0001_initial")]


def migrate(targets):
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_a_token_from_before_keeps_what_it_could_do_and_gets_an_end():
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
