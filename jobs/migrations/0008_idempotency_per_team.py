from django.db import migrations, models

# On the way back a key holds for one user again: of several teams' jobs the oldest keeps it.
ONE_PER_USER = """
    UPDATE jobs_job SET idempotency_key = NULL WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY user_id, idempotency_key ORDER BY id) AS place
            FROM jobs_job WHERE idempotency_key IS NOT NULL
        ) AS numbered WHERE place > 1
    )
"""


class Migration(migrations.Migration):
    """An idempotency key belongs to a team as well, and remembers which request it came with.

    Keys from before keep no digest and match any request, as they did. Old code inserts without a digest.
    """

    dependencies = [("jobs", "0007_watched_replicas")]

    operations = [
        migrations.AddField(
            "job",
            "request_digest",
            models.CharField(
                help_text="sha256 of the request that brought the key; null for keys from before",
                max_length=64,
                null=True,
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.UniqueConstraint(fields=("user", "team", "idempotency_key"), name="job_once_per_team_and_key"),
        ),
        migrations.RemoveConstraint("job", "job_once_per_idempotency_key"),
        migrations.RunSQL(migrations.RunSQL.noop, reverse_sql=ONE_PER_USER),
    ]
