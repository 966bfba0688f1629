from django.db import migrations, models


class Migration(migrations.Migration):
    """A replica's row says which look of the cluster it holds, so that an older one does not write over it."""

    dependencies = [("jobs", "0006_mirrored_lines")]

    operations = [
        migrations.AddField(
            "replica",
            "seen_version",
            models.BigIntegerField(db_default=0, default=0, help_text="of the cluster's look that is written here"),
        ),
        migrations.AddField(
            "replica", "seen_at", models.DateTimeField(help_text="when that was written", null=True)
        ),
    ]
