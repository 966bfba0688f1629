import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """What logs take is counted, and a team may have bounds of its own."""

    dependencies = [("accounts", "0007_audit_may_be_trimmed"), ("jobs", "0012_attempt_failures")]

    operations = [
        migrations.CreateModel(
            "LogBudget",
            [
                (
                    "team",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="log_budget",
                        serialize=False,
                        to="accounts.team",
                    ),
                ),
                ("job_bytes", models.PositiveBigIntegerField(blank=True, null=True)),
                ("team_bytes", models.PositiveBigIntegerField(blank=True, null=True)),
            ],
        ),
        migrations.AddField(
            "job",
            "log_bytes",
            models.BigIntegerField(
                help_text="what its log takes; settled after its end, null before (replicas have the parts)", null=True
            ),
        ),
        migrations.AddField(
            "replica",
            "log_bytes",
            models.BigIntegerField(db_default=0, default=0, help_text="of its lines' text, as ingest stored it"),
        ),
        migrations.AlterField(
            "job",
            "logs_collected_at",
            models.DateTimeField(help_text="when its log was deleted", null=True),
        ),
    ]
