import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import jobs.models.output


class Migration(migrations.Migration):
    """Roll-ups of metrics, filled by a task from the chunks that are there. Old code neither reads nor writes them."""

    dependencies = [("jobs", "0017_nodes")]

    operations = [
        migrations.CreateModel(
            name="RollupPosition",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("read", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="MetricRollup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("attempt", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=60)),
                ("width", models.PositiveIntegerField(help_text="of the bucket, in seconds")),
                ("begins", models.BigIntegerField(help_text="in seconds since the epoch, a multiple of the width")),
                ("ranks", models.IntegerField(default=0, help_text="that reported a finite value")),
                ("step", models.BigIntegerField(help_text="the furthest; null where a value came without one", null=True)),
                ("low", models.FloatField(help_text="the lowest of all values", null=True)),
                ("p5", models.FloatField(help_text="of the ranks' means, as are median and p95", null=True)),
                ("median", models.FloatField(null=True)),
                ("p95", models.FloatField(null=True)),
                ("high", models.FloatField(help_text="the highest of all values", null=True)),
                (
                    "worst",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.IntegerField(),
                        default=list,
                        help_text="ranks, the farthest from the median first",
                        size=None,
                    ),
                ),
                (
                    "chunks",
                    jobs.models.output.Int8Multirange(
                        default="{}", help_text="ids: all chunks with values in this bucket lie within"
                    ),
                ),
                ("is_due", models.BooleanField(default=False)),
                ("rolled_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rollups", to="jobs.job"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index("begins", condition=Q(is_due=True), name="rollup_due")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "attempt", "name", "width", "begins"), name="rollup_once_per_bucket"
                    )
                ],
            },
        ),
    ]
