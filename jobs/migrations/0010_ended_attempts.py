from django.db import migrations, models


class Migration(migrations.Migration):
    """A replica keeps when its attempt ended and a rank how often it was restarted, so that an end is reported once."""

    dependencies = [("jobs", "0009_unexpected_ranks")]

    operations = [
        migrations.AddField(
            "replica",
            "closed_at",
            models.DateTimeField(
                help_text="when its attempt ended; from then on its ranks stay as they are", null=True
            ),
        ),
        migrations.AddField(
            "rank",
            "restarts",
            models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="how often it was started again in this replica; only that changes an end",
            ),
        ),
    ]
