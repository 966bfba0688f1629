from django.db import migrations, models


class Migration(migrations.Migration):
    """A job may be ended without its grace. Old code neither reads nor writes it: there such a job has its grace."""

    dependencies = [("jobs", "0014_log_budget_indexes")]

    operations = [
        migrations.AddField(
            "job",
            "cancel_now_at",
            models.DateTimeField(help_text="when somebody asked to end it without its grace", null=True),
        ),
    ]
