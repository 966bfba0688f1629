from django.db import migrations, models


class Migration(migrations.Migration):
    """What NVML reports of a rank's GPU beside its use. Old code neither reads nor writes it."""

    dependencies = [("jobs", "0018_metric_rollups")]

    operations = [
        migrations.AddField("rank", "gpu_mem_total_bytes", models.BigIntegerField(null=True)),
        migrations.AddField("rank", "gpu_watts", models.FloatField(null=True)),
        migrations.AddField("rank", "gpu_celsius", models.FloatField(null=True)),
        migrations.AddField(
            "rank",
            "gpu_ecc_errors",
            models.BigIntegerField(help_text="uncorrected, since the driver was loaded", null=True),
        ),
        migrations.AddField(
            "rank",
            "gpu_xid",
            models.IntegerField(help_text="the last critical error that the driver reported", null=True),
        ),
    ]
