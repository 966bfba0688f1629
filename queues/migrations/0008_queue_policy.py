from django.db import migrations, models


class Migration(migrations.Migration):
    """Queues that exist stay strict. Processes of the release before do not name the column."""

    dependencies = [("queues", "0007_team_namespaces")]

    operations = [
        migrations.AddField(
            "queue",
            "policy",
            models.CharField(
                choices=[("strict", "strict"), ("backfill", "backfill"), ("best_effort", "best effort")],
                db_default="strict",
                default="strict",
                help_text="whether a job may start before one that came earlier and does not fit",
                max_length=12,
            ),
        ),
    ]
