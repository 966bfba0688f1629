"""Notes about a job's own reports are said once, whoever has them to tell."""

import threading
import time

import pytest
from django.db import connection, transaction

from jobs import notes
from jobs.models import JobEvent

PATIENCE_SECONDS = 60


def who_wait_for_a_lock() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_two_who_tell_the_same_at_the_same_moment_say_it_once(lab):
    job = lab.submit()

    def tell() -> None:
        try:
            notes.note_once(job=job.pk, attempt=1, about="Too many series: ", message="this job has 200")
        finally:
            connection.close()

    threads = [threading.Thread(target=tell) for _ in range(2)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE jobs_jobevent IN SHARE ROW EXCLUSIVE MODE")  # all may look, nobody may write
        for thread in threads:
            thread.start()
        until = time.monotonic() + PATIENCE_SECONDS
        while who_wait_for_a_lock() < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    said = JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True)
    assert list(said) == ["Too many series: this job has 200"]
