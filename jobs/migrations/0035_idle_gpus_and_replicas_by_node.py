from django.db import migrations, models

from common.db.migration_operations import AddField, AddIndexConcurrently


class Migration(migrations.Migration):
    """Since when a rank's GPU is idle, which replicas ran on a node, and which still do."""

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
        AddIndexConcurrently(
            "replica",
            models.Index(
                condition=models.Q(
                    models.Q(("node", ""), _negated=True), ("ended_at__isnull", True), ("closed_at__isnull", True)
                ),
                fields=["node"],
                name="replica_live_by_node",
            ),
        ),
    ]
