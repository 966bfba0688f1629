from django.db import migrations, models


class Migration(migrations.Migration):
    """Queues that exist have no limits and drain nothing. Processes of the release before do not name the columns."""

    dependencies = [("queues", "0009_cohorts")]

    operations = [
        migrations.AddField(
            "queue",
            "drains",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="whether running jobs give their quota back while it is closed",
            ),
        ),
        migrations.AddField("queue", "highest_priority", models.SmallIntegerField(null=True)),
        migrations.AddField("queue", "largest_job", models.PositiveIntegerField(help_text="slots of one job", null=True)),
        migrations.AddField(
            "queue", "longest_seconds", models.PositiveIntegerField(help_text="deadline of a job", null=True)
        ),
        migrations.AddField(
            "queue",
            "slots_per_user",
            models.PositiveIntegerField(help_text="that the jobs of one user hold at once", null=True),
        ),
        migrations.AddField(
            "queue",
            "budget_hours",
            models.PositiveIntegerField(help_text="hours times slots in a calendar month (UTC)", null=True),
        ),
    ]
