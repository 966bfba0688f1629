from django.db import migrations, models


class Migration(migrations.Migration):
    """A replica's lines may come from its container's own log."""

    dependencies = [("jobs", "0005_replaced_replicas")]

    operations = [
        migrations.AddField(
            "replica",
            "mirrored_at",
            models.DateTimeField(help_text="when lines were last read from its container's own log", null=True),
        ),
    ]
