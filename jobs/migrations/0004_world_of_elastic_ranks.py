from django.db import migrations, models


class Migration(migrations.Migration):
    """What torchrun calls a rank of an elastic job now, beside the place that Muster knows it by."""

    dependencies = [("jobs", "0003_packed_logs")]

    operations = [
        migrations.AddField("rank", "world_rank", models.PositiveIntegerField(null=True)),
        migrations.AddField("rank", "world_size", models.PositiveIntegerField(null=True)),
    ]
