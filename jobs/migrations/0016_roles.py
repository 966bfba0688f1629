from django.db import migrations, models

from common.db.migration_operations import AddField

BATCH = 2000  # ids in one transaction: rows of running jobs are locked only briefly

# Until now every job had one role of workers, and the first replica of an elastic one was its anchor.
_FILL = """
    UPDATE jobs_job SET roles = jsonb_build_array(jsonb_build_object(
        'name', 'worker', 'replicas', (spec->>'nodes')::int, 'processes', (spec->>'nproc_per_node')::int,
        'first_rank', 0, 'completes', true, 'essential', true, 'least', (spec->>'min_nodes')::int,
        'anchor', CASE WHEN spec->>'min_nodes' IS NULL THEN NULL ELSE 0 END
    )) WHERE roles IS NULL AND id >= %s AND id < %s
"""


def fill(apps, schema_editor):
    job = apps.get_model("jobs", "Job")
    newest = job.objects.order_by("-id").values_list("id", flat=True).first() or 0
    for first in range(0, newest + 1, BATCH):
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(_FILL, [first, first + BATCH])


class Migration(migrations.Migration):
    """A job's roles stand in its row. Old code neither reads nor writes them: its jobs get them with the next attempt."""

    atomic = False
    dependencies = [("jobs", "0015_cancel_now")]

    operations = [
        AddField(
            "job",
            "roles",
            models.JSONField(
                help_text="its roles as RoleView, frozen at submission; null where a release before roles submitted it",
                null=True,
            ),
        ),
        migrations.AlterField(
            "job", "slots", models.PositiveIntegerField(help_text="quota it takes, over all roles")
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
