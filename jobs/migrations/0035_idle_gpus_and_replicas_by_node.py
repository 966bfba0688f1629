from django.db import migrations, models

from common.db.migration_operations import AddField, AddIndexConcurrently


class Migration(migrations.Migration):
    """Since when a rank's GPU is idle, and which replicas ran on a node."""

    atomic = False  # the index is built beside those who write

    dependencies = [("jobs", "0034_cluster_nodes")]

    operations = [
        AddField(
            "rank",
            "gpu_idle_since",
            models.DateTimeField(help_text="since when every report had its GPU idle; null: in use", null=True),
        ),
        AddIndexConcurrently(
            "replica",
            models.Index(
                condition=models.Q(("node", ""), _negated=True), fields=["node", "-id"], name="replica_by_node"
            ),
        ),
    ]
