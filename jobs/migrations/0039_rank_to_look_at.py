from django.db import migrations, models
from django.db.models import Q

from common.db.migration_operations import AddIndexConcurrently


class Migration(migrations.Migration):
    """The running ranks whose GPU is idle or has errors, which are few: a cluster's page reads them alone."""

    atomic = False  # the index is built beside those who write

    dependencies = [("jobs", "0038_waiting_in_order")]

    operations = [
        AddIndexConcurrently(
            "rank",
            models.Index(
                fields=["replica"],
                condition=Q(state="running")
                & (Q(gpu_idle_since__isnull=False) | Q(gpu_xid__isnull=False) | Q(gpu_ecc_errors__gt=0)),
                name="rank_to_look_at",
            ),
        ),
    ]
