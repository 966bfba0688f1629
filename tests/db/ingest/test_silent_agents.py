"""A running replica whose agent stopped or cannot reach the server is shown as silent on the page and in the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.core.silence import silent_for
from jobs.ingest import apply
from jobs.models import Replica
from tests.support.builders import batch, identity

NOW = timezone.now()


@pytest.mark.parametrize(
    "state, started, heard, silent",
    [
        ("running", 300, 59, None),
        ("running", 300, 61, 61),
        ("running", 300, None, 300),  # never reported at all
        ("running", 30, None, None),
        ("running", None, None, None),
        ("pending", 300, 300, None),
        ("succeeded", 300, 300, None),
        ("failed", 300, 300, None),
        ("lost", 300, 300, None),
    ],
)
def test_only_a_running_replica_is_silent_after_a_minute(state, started, heard, silent):
    def ago(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    found = silent_for(state, started_at=ago(started), last_batch_at=ago(heard), now=NOW)
    assert found == (None if silent is None else timedelta(seconds=silent))


@pytest.mark.django_db
@pytest.mark.usefixtures("files")
def test_the_page_and_the_api_show_which_agent_is_silent(lab, as_, people):
    job, owner = lab.running(), as_(people.owner)
    for index in (0, 1):
        apply.apply_batch(identity=identity(job, index), batch=batch(1))

    def shown() -> tuple[list[bool], str]:
        found = owner.get(f"/api/v1/jobs/{job.pk}/replicas").json()["results"]
        return [one["is_silent"] for one in found], owner.get(f"/jobs/{job.pk}").content.decode()

    silent, page = shown()
    assert silent == [False, False] and "has been silent" not in page
    Replica.objects.filter(job=job, index=1).update(last_batch_at=timezone.now() - timedelta(seconds=75))
    silent, page = shown()
    assert silent == [False, True]
    assert "worker-1 has been silent for 1 min" in page and "worker-0 has been silent" not in page
    apply.apply_batch(identity=identity(job, 1), batch=batch(2))
    assert shown()[0] == [False, False]
