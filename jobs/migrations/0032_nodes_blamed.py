from django.db import migrations, models

from common.db.migration_operations import AddField, AddIndexConcurrently


class Migration(migrations.Migration):
    """Which node a verdict blames, and where in the topology of its cluster a replica landed."""

    atomic = False  # the index is built beside those who write

    dependencies = [("jobs", "0031_indexes_for_removal")]

    operations = [
        AddField(
            "attemptfailure",
            "node",
            models.CharField(
                blank=True, db_default="", default="", help_text="that it blames; empty for most", max_length=253
            ),
        ),
        AddField(
            "replica",
            "topology",
            models.JSONField(
                help_text="the node's values of the labels that its queue's template names as levels; null: not looked up",
                null=True,
            ),
        ),
        AddIndexConcurrently(
            "attemptfailure",
            models.Index(
                condition=models.Q(("node", ""), _negated=True), fields=["judged_at"], name="failure_blaming_a_node"
            ),
        ),
    ]
