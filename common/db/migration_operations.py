"""Operations of migrations that are not one transaction, each of which can be repeated after it was cut off.

Postgres builds an index beside those who write only outside of a transaction, so such a migration that fails, or whose
process is killed, leaves what it had done so far. Django records a migration only as a whole: the next try begins with
its first operation again, which must then neither fail nor take what is half made for whole.
"""

from django.contrib.postgres import operations
from django.db import migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from django.db.migrations.state import ProjectState


class AddIndexConcurrently(operations.AddIndexConcurrently):
    """Drop an index of this name first: one whose build was cut off is left behind invalid, and is never used."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        assert isinstance(schema_editor, DatabaseSchemaEditor)
        model = to_state.apps.get_model(app_label, self.model_name)
        schema_editor.remove_index(model, self.index, concurrently=True)  # if there is one
        super().database_forwards(app_label, schema_editor, from_state, to_state)


class AddField(migrations.AddField):
    """Add the column in a transaction of its own, unless it is there."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        options = to_state.apps.get_model(app_label, self.model_name)._meta
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            table = connection.introspection.get_table_description(cursor, options.db_table)
        if options.get_field(self.name).column in {column.name for column in table}:
            return
        with transaction.atomic(connection.alias):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
