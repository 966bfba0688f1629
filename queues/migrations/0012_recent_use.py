import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table of its own: processes of the release before go by what is borrowed now."""

    dependencies = [("queues", "0011_quota_requests")]

    operations = [
        migrations.CreateModel(
            "RecentUse",
            [
                (
                    "queue",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="queues.queue",
                    ),
                ),
                ("slots", models.FloatField(help_text="that its jobs held on average; later moments count more")),
                ("noted_at", models.DateTimeField()),
            ],
        ),
    ]
