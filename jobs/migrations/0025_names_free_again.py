from django.db import migrations, models

OPEN = "NOT (phase IN ('cancelled', 'failed', 'succeeded'))"


class Migration(migrations.Migration):
    """A job's name is free again when it has finished; of open jobs each name is one's, for every process of any release."""

    atomic = False  # the index is built beside those who write

    dependencies = [("jobs", "0024_nan")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AddConstraint(
                    "job",
                    models.UniqueConstraint(
                        condition=models.Q(("phase__in", ["cancelled", "failed", "succeeded"]), _negated=True),
                        fields=("team", "name"),
                        name="job_open_name_once_per_team",
                    ),
                ),
                migrations.RemoveConstraint("job", "job_name_once_per_team"),
            ],
            # Each can be repeated: one that was cut off leaves an index behind that is never used.
            database_operations=[
                migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS job_open_name_once_per_team", migrations.RunSQL.noop),
                migrations.RunSQL(
                    f"CREATE UNIQUE INDEX CONCURRENTLY job_open_name_once_per_team ON jobs_job (team_id, name) WHERE {OPEN}",
                    "DROP INDEX CONCURRENTLY IF EXISTS job_open_name_once_per_team",
                ),
                migrations.RunSQL("ALTER TABLE jobs_job DROP CONSTRAINT IF EXISTS job_name_once_per_team", migrations.RunSQL.noop),
            ],
        )
    ]
