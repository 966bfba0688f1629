from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns with defaults in the database: processes of the release before insert attempts without them."""

    dependencies = [("jobs", "0039_rank_to_look_at")]

    operations = [
        migrations.AddField(
            "attempt",
            "idle_seconds",
            models.FloatField(
                db_default=0.0, default=0.0, help_text="of all its GPUs together, for as long as they were idle at least"
            ),
        ),
        migrations.AddField(
            "attempt",
            "idle_noted_at",
            models.DateTimeField(help_text="until when idle GPUs were added to that", null=True),
        ),
    ]
