from django.db import migrations, models


class Migration(migrations.Migration):
    """A replica keeps what its agent reports of ranks that are none of its own."""

    dependencies = [("jobs", "0008_idempotency_per_team")]

    operations = [
        migrations.AddField(
            "replica",
            "unexpected_ranks",
            models.JSONField(
                db_default={},
                default=dict,
                help_text="rank to what its agent reported of it, though it is none of this replica",
            ),
        ),
        migrations.AddField(
            "replica",
            "unexpected_lines",
            models.BigIntegerField(
                db_default=0,
                default=0,
                help_text="lines of unexpected ranks that were added to the launcher's log",
            ),
        ),
    ]
