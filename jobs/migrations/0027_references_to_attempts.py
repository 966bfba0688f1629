import django.db.models.deletion
from django.db import migrations, models

from common.db.migration_operations import AddField


def reference() -> "models.ForeignKey[object, object]":
    return models.ForeignKey(
        db_index=False,
        help_text="the row of its attempt",
        null=True,
        on_delete=django.db.models.deletion.CASCADE,
        related_name="+",
        to="jobs.attempt",
    )


class Migration(migrations.Migration):
    """References to the rows of attempts: empty columns, for which Postgres checks no row."""

    atomic = False  # each table is locked for a moment, alone

    dependencies = [("jobs", "0026_attempts")]

    operations = [AddField(model, "launch", reference()) for model in ("attemptfailure", "jobevent", "replica")]
