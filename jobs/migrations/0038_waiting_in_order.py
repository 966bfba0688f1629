from django.db import migrations, models
from django.db.models import Q

from common.db.migration_operations import AddIndexConcurrently


class Migration(migrations.Migration):
    """A pass of the scheduler reads the first jobs of each queue, however many wait behind them."""

    atomic = False  # the indexes are built beside those who write

    dependencies = [("jobs", "0037_wait_code")]

    operations = [
        AddIndexConcurrently(
            "job",
            models.Index(
                fields=["queue", "-priority", "created_at", "id"],
                condition=Q(phase="queued"),
                name="job_waiting_in_order",
            ),
        ),
        AddIndexConcurrently(
            "job",
            models.Index(fields=["queue", "slots", "id"], condition=Q(phase="queued"), name="job_waiting_by_slots"),
        ),
        AddIndexConcurrently(
            "job",
            models.Index(
                fields=["queue"], condition=Q(("phase", "queued"), ~Q(wait_code="behind")), name="job_waiting_in_front"
            ),
        ),
    ]
