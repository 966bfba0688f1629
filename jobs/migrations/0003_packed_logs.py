from django.db import migrations, models

from common.db.migration_operations import AddField, AddIndexConcurrently


class Migration(migrations.Migration):
    """Segments can be packed into large files and collected for their age; a follower finds new ones by one index."""

    atomic = False  # indexes of a table that is written all the time are made beside it

    dependencies = [("jobs", "0002_job_secrets")]

    operations = [
        AddField(
            "job",
            "logs_collected_at",
            models.DateTimeField(help_text="when its log was deleted for its age", null=True),
        ),
        AddField(
            "logsegment",
            "is_packed",
            models.BooleanField(db_default=False, default=False, help_text="lies in a large file with others"),
        ),
        AddIndexConcurrently("logsegment", models.Index(models.F("job"), models.F("id"), name="segment_by_job")),
        AddIndexConcurrently(
            "logsegment",
            models.Index(
                models.F("replica"),
                models.F("id"),
                condition=models.Q(("is_packed", False), models.Q(("path", ""), _negated=True)),
                name="segment_to_pack",
            ),
        ),
    ]
