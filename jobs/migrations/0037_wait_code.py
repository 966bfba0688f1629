from django.db import migrations, models


class Migration(migrations.Migration):
    """The code of the reason why a job waits. Empty where a process of the release before wrote the sentence."""

    dependencies = [("jobs", "0036_cluster_checks")]

    operations = [
        migrations.AddField(
            "job",
            "wait_code",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="of the reason (queues/admission/reasons.py)",
                max_length=20,
            ),
        ),
    ]
