from django.db import migrations, models

from common.db.migration_operations import AddField


class Migration(migrations.Migration):
    """A page of code says what its sender's folder had beside it."""

    dependencies = [("workspaces", "0003_manifest_bytes")]

    operations = [
        AddField(
            "workspace",
            "left_out",
            models.JSONField(
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="what its last sender's folder had beside it, ignored by git or .musterignore",
            ),
        ),
    ]
