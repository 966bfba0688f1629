import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """A table of its own: processes of the release before do not know of it."""

    dependencies = [
        ("accounts", "0007_audit_may_be_trimmed"),
        ("queues", "0010_queue_rules"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "QuotaRequest",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("has", models.PositiveIntegerField()),
                ("wanted", models.PositiveIntegerField(help_text="in all, not how many more")),
                ("why", models.CharField(max_length=500)),
                ("asked_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("granted", "Granted"),
                            ("declined", "Declined"),
                            ("withdrawn", "Withdrawn"),
                        ],
                        default="open",
                        max_length=9,
                    ),
                ),
                ("granted", models.PositiveIntegerField(help_text="in all; may be less than was wanted", null=True)),
                ("answer", models.CharField(blank=True, max_length=500)),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "decided_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "flavor",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="queues.flavor"
                    ),
                ),
                (
                    "queue",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="queues.queue"
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.team"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(queue__isnull=False, flavor=None) | Q(queue=None, flavor__isnull=False),
                        name="request_of_queue_or_flavor",
                    ),
                    models.UniqueConstraint(
                        condition=Q(state="open"), fields=["queue"], name="queue_is_asked_for_once"
                    ),
                    models.UniqueConstraint(
                        condition=Q(state="open"), fields=["team", "flavor"], name="flavor_is_asked_for_once"
                    ),
                ],
            },
        )
    ]
