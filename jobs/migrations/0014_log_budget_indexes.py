from django.db import migrations, models

from common.db.migration_operations import AddIndexConcurrently


class Migration(migrations.Migration):
    """What a team's logs take is summed from two small indexes."""

    atomic = False  # indexes of a table that is written all the time are made beside it

    dependencies = [("jobs", "0013_log_budget")]

    operations = [
        AddIndexConcurrently(
            "job", models.Index(condition=models.Q(("log_bytes", None)), fields=["team"], name="job_log_unsettled")
        ),
        AddIndexConcurrently(
            "job",
            models.Index(
                condition=models.Q(("log_bytes__gt", 0)),
                fields=["team"],
                include=("log_bytes",),
                name="job_log_bytes_by_team",
            ),
        ),
    ]
