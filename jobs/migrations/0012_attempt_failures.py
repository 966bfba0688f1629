import django.db.models.deletion
from django.db import migrations, models

KINDS = [
    "user_code", "import_error", "config", "data", "disk", "host_memory", "device_memory", "comm_timeout", "connection_lost",
    "signal", "hardware", "image", "volume", "no_place", "node_lost", "preempted", "deadline", "start_timeout", "unknown",
]  # fmt: skip


class Migration(migrations.Migration):
    """Why each attempt failed, as rows that lists and filters read; and the end of what a failed rank printed."""

    dependencies = [("jobs", "0011_series_by_attempt")]

    operations = [
        migrations.AddField(
            "rank",
            "error",
            models.JSONField(help_text="the end of what it printed, as its agent sent it with a failure", null=True),
        ),
        migrations.CreateModel(
            "AttemptFailure",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("attempt", models.PositiveIntegerField()),
                ("rank", models.PositiveIntegerField(help_text="none where a replica failed before it had ranks", null=True)),
                ("replica", models.CharField(blank=True, max_length=40)),
                ("exit_code", models.IntegerField(null=True)),
                ("signal", models.IntegerField(null=True)),
                ("at", models.DateTimeField(null=True)),
                ("kind", models.CharField(choices=[(one, one.replace("_", " ")) for one in KINDS], max_length=20)),
                ("certainty", models.CharField(choices=[("sure", "sure"), ("likely", "likely")], max_length=10)),
                ("headline", models.TextField(help_text="the error itself in one line")),
                ("explanation", models.TextField(help_text="the end in words")),
                ("traceback", models.JSONField(default=list, help_text="lines")),
                ("last_lines", models.JSONField(default=list, help_text="the traceback, or without one the last lines that were printed")),
                ("traceback_rank", models.PositiveIntegerField(help_text="whose traceback it is", null=True)),
                ("has_stopped_others", models.BooleanField(default=False, help_text="others were stopped by their launchers for it")),
                ("judged_at", models.DateTimeField()),
                ("job", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="attempt_failures", to="jobs.job")),
            ],
            options={
                "indexes": [models.Index("kind", "job", "attempt", name="failure_by_kind")],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "attempt"), name="failure_once_per_attempt"),
                    models.CheckConstraint(condition=models.Q(("kind__in", KINDS)), name="failure_kind_is_known"),
                ],
            },
        ),
    ]
