"""Applies all migrations to the empty database of the settings, cutting off those that are not one transaction: a program.

Each of these begins again after its first operation, after its first two, and so on, and the indexes that it built are
marked as those of a building that was cut off. Prints the name of each and how often it began.
"""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from django.db import connection  # noqa: E402
from django.db.migrations import Migration  # noqa: E402
from django.db.migrations.executor import MigrationExecutor  # noqa: E402


def cut_off(migration: Migration, executor: MigrationExecutor) -> None:
    state = executor.loader.project_state(list(migration.dependencies) + sorted(executor.loader.applied_migrations))
    for count in range(1, len(migration.operations) + 1):
        part = Migration(migration.name, migration.app_label)
        part.operations = migration.operations[:count]
        with connection.schema_editor(atomic=False) as editor:
            part.apply(state.clone(), editor)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pg_index SET indisvalid = false FROM pg_class WHERE pg_class.oid = indexrelid AND relname = ANY(%s)",
                [[one.index.name for one in part.operations if hasattr(one, "index")]],
            )
    print(f"{migration.app_label}.{migration.name} {len(migration.operations)}")


def apply_all() -> None:
    executor = MigrationExecutor(connection)
    for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        executor = MigrationExecutor(connection)
        if not migration.atomic:
            cut_off(migration, executor)
        executor.migrate([(migration.app_label, migration.name)])


apply_all()
