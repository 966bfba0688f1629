from django.db import migrations, models


class Migration(migrations.Migration):
    """What a head's agent reports of its framework's own cluster. Old code neither reads nor writes it."""

    dependencies = [("jobs", "0016_roles")]

    operations = [
        migrations.AddField(
            "replica",
            "nodes",
            models.JSONField(
                help_text="the nodes of its framework's own cluster as its agent last reported them (jobs/core/nodes.py)",
                null=True,
            ),
        ),
    ]
