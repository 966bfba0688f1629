from django.db import migrations, models

from common.db.migration_operations import AddIndexConcurrently

NAMES = (("attemptfailure", "failure_by_launch"), ("jobevent", "event_by_launch"), ("replica", "replica_by_launch"))


class Migration(migrations.Migration):
    """Which jobs are to be removed; and what refers to an attempt, as Postgres looks that up for each one that is deleted."""

    atomic = False  # indexes of tables that are written all the time are made beside it

    dependencies = [("jobs", "0030_removed_jobs")]

    operations = [
        AddIndexConcurrently(
            "job",
            models.Index(
                condition=models.Q(("finished_at__isnull", False), ("ttl_seconds__isnull", False)),
                fields=["finished_at"],
                name="job_to_remove",
            ),
        ),
        *(
            AddIndexConcurrently(
                model, models.Index(condition=models.Q(("launch__isnull", False)), fields=["launch"], name=name)
            )
            for model, name in NAMES
        ),
    ]
