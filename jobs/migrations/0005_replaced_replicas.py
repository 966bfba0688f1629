from django.db import migrations, models


class Migration(migrations.Migration):
    """A place of an elastic job can be given to another replica within its attempt."""

    dependencies = [("jobs", "0004_world_of_elastic_ranks")]

    operations = [
        migrations.AddField(
            "replica",
            "incarnation",
            models.PositiveIntegerField(db_default=0, default=0, help_text="how often its place was given anew"),
        ),
        migrations.AddField("replica", "replaced_at", models.DateTimeField(help_text="when that was decided", null=True)),
        migrations.AddField(
            "replica",
            "applied_at",
            models.DateTimeField(help_text="when the cluster had confirmed the newest one's creation", null=True),
        ),
        migrations.AddField(
            "replica",
            "lines_before",
            models.JSONField(db_default={}, default=dict, help_text="rank to lines that its earlier ones sent"),
        ),
    ]
