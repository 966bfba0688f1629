import django.contrib.postgres.fields
from django.db import migrations, models

from common.db.migration_operations import AddField


class Migration(migrations.Migration):
    """A rank whose loss is no longer a finite number says since when."""

    dependencies = [("jobs", "0023_judgement")]

    operations = [
        AddField(
            "rank",
            "nan_series",
            models.CharField(
                db_default="",
                default="",
                help_text="whose newest value is not finite, such as loss; empty: none",
                max_length=60,
            ),
        ),
        AddField(
            "rank",
            "nan_step",
            models.BigIntegerField(
                help_text="since which step; null where it was reported without one", null=True
            ),
        ),
        # Elements of an array are nullable to the database in any case.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    "metricchunk",
                    "values",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(null=True), size=None),
                )
            ]
        ),
    ]
