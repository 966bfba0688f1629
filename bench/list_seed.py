"""Fill the installation's database with finished jobs, each with ranks. Prints one JSON line: where the last page begins, and
the number of queries that the first and the last page take."""

import json
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.models import User  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.models import Job, JobEvent, Rank, Replica  # noqa: E402
from queues.models import Queue  # noqa: E402

SPEC = JobSpec(("torchrun", "train.py"), nodes=2, nproc_per_node=2).to_json()
PAGE = 50


def main(count: int) -> dict[str, object]:
    queue, user, now = Queue.objects.select_related("team").get(), User.objects.get(username="admin"), timezone.now()
    jobs = Job.objects.bulk_create(
        [
            Job(
                team=queue.team, queue=queue, user=user, name=f"job-{number}", spec=SPEC, slots=4, phase="succeeded",
                stop_reason="completed", attempt=1, launched_at=now, finished_at=now, next_reconcile_at=None,
            )
            for number in range(count)
        ],
        batch_size=1000,
    )  # fmt: skip
    replicas = Replica.objects.bulk_create(
        [
            Replica(
                job=job, attempt=1, role="worker", index=index, name=f"{job.run}-1-worker-{index}", state="succeeded"
            )
            for job in jobs
            for index in range(2)
        ],
        batch_size=2000,
    )
    Rank.objects.bulk_create(
        [
            Rank(replica=one, job=one.job, attempt=1, rank=2 * one.index + local, local_rank=local, state="succeeded")
            for one in replicas
            for local in range(2)
        ],
        batch_size=2000,
    )
    JobEvent.objects.bulk_create(
        [JobEvent(job=job, kind="submitted", phase="queued", message="submitted", user=user) for job in jobs],
        batch_size=2000,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    last = jobs[PAGE].pk
    return {
        "first": jobs[-1].pk,
        "last_page_before": last,
        "queries": _queries(user, ["/jobs", f"/jobs?before={last}"]),
    }


def _queries(user: User, paths: list[str]) -> list[int]:
    reader = Client(headers={"host": "127.0.0.1"})
    reader.force_login(user)
    counts = []
    for path in paths:
        with CaptureQueriesContext(connection) as found:
            assert reader.get(path).status_code == 200
        counts.append(len(found))
    return counts


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
