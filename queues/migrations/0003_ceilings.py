import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Sum


def begin_at_todays_quota(apps, editor):
    queues, ceilings = apps.get_model("queues", "Queue").objects, apps.get_model("queues", "Ceiling").objects
    for one in queues.order_by().values("team_id", "resource").annotate(slots=Sum("nominal")):
        ceilings.create(team_id=one["team_id"], resource=one["resource"], slots=one["slots"])


class Migration(migrations.Migration):
    """Ceilings of teams. Old code neither reads nor writes them; queues that it makes raise them when next changed."""

    dependencies = [
        ("accounts", "0007_audit_may_be_trimmed"),
        ("queues", "0002_queue_description"),
    ]

    operations = [
        migrations.CreateModel(
            name="Ceiling",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("resource", models.CharField(choices=[("gpu", "GPUs"), ("cpu", "CPU slots")], max_length=3)),
                ("slots", models.PositiveIntegerField(blank=True, help_text="null: no ceiling", null=True)),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="ceilings", to="accounts.team"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("team", "resource"), name="ceiling_once_per_resource")
                ],
            },
        ),
        migrations.RunPython(begin_at_todays_quota, migrations.RunPython.noop),
    ]
