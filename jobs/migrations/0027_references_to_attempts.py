import django.db.models.deletion
from django.db import migrations, models

from common.db.migration_operations import AddField


class Migration(migrations.Migration):
    """References to the rows of attempts: empty columns, for which Postgres checks no row."""

    atomic = False  # each table is locked for a moment, alone

    dependencies = [("jobs", "0026_attempts")]

    operations = [
        AddField(
            "attemptfailure",
            "launch",
            models.ForeignKey(
                db_index=False, help_text="the row of its attempt", null=True,
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.attempt",
            ),
        ),
        AddField(
            "jobevent",
            "launch",
            models.ForeignKey(
                db_index=False, help_text="the row of its attempt", null=True,
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.attempt",
            ),
        ),
        AddField(
            "replica",
            "launch",
            models.ForeignKey(
                db_index=False, help_text="the row of its attempt", null=True,
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.attempt",
            ),
        ),
    ]
