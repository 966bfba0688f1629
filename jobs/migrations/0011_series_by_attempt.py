from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from common.db.migration_operations import AddIndexConcurrently


class Migration(migrations.Migration):
    """A page reads the series of one attempt by single steps into this index; the one before it did not know attempts."""

    atomic = False  # indexes of a table that is written all the time are made beside it

    dependencies = [("jobs", "0010_ended_attempts")]

    operations = [
        AddIndexConcurrently(
            "metricchunk",
            models.Index(
                models.F("job"), models.F("attempt"), models.F("name"), models.F("rank"), models.F("id"),
                name="series_by_attempt",
            ),
        ),
        RemoveIndexConcurrently("metricchunk", "metric_series"),
    ]
