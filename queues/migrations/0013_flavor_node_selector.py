from django.db import migrations, models


class Migration(migrations.Migration):
    """Two pools of nodes of one cluster are two flavors. Processes of the release before make flavors without a selector."""

    dependencies = [("queues", "0012_recent_use")]

    operations = [
        migrations.AddField(
            "flavor",
            "node_selector",
            models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text="labels that its nodes have; empty: all nodes of the cluster",
            ),
        ),
        migrations.RemoveConstraint("flavor", "flavor_once"),
        migrations.AddConstraint(
            "flavor",
            models.UniqueConstraint(
                fields=("cluster", "resource", "gpus_per_node", "node_selector"), name="flavor_is_one_kind"
            ),
        ),
    ]
