from django.db import migrations, models

from common.db.migration_operations import AddField, AddIndexConcurrently


class Migration(migrations.Migration):
    """A visit judges why attempts failed, also by reports that come after their end."""

    atomic = False  # the index is built beside those who write

    dependencies = [("jobs", "0022_attempt_floor")]

    operations = [
        AddField(
            "attemptfailure",
            "after_end",
            models.BooleanField(
                db_default=False, default=False, help_text="it became this one by reports that came after the attempt's end"
            ),
        ),
        AddField(
            "replica",
            "unjudged_at",
            models.DateTimeField(
                help_text="when its agent last reported what may change its attempt's verdict; null: judged since", null=True
            ),
        ),
        AddIndexConcurrently(
            "replica",
            models.Index("job", condition=models.Q(("unjudged_at__isnull", False)), name="replica_unjudged"),
        ),
    ]
