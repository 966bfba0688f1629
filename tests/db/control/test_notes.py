"""Notes about a job are deduplicated, whatever process writes them."""

import pytest
from django.db import connection, transaction

from jobs.ingest import notes
from jobs.models import JobEvent
from tests.support.locks import in_thread, until_waiting
from tests.support.patience import PATIENCE_SECONDS


@pytest.mark.django_db(transaction=True)
def test_notes_written_concurrently_are_deduplicated(lab):
    job = lab.submit()

    def tell() -> None:
        notes.note_once(job=job.pk, attempt=1, about="Too many series: ", message="this job has 200")

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE jobs_jobevent IN SHARE ROW EXCLUSIVE MODE")  # allows reads but blocks writes
        threads = [in_thread(tell) for _ in range(2)]
        until_waiting(2)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    said = JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True)
    assert list(said) == ["Too many series: this job has 200"]
