"""Rows for recorded pods: `python -m bench.watch_seed`, names of runs and their replicas as JSON on the standard input."""

import json
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from datetime import timedelta  # noqa: E402

from django.utils import timezone  # noqa: E402

from accounts.models import User  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.models import Job, Replica  # noqa: E402
from queues.models import Queue  # noqa: E402


def main(runs: dict[str, int]) -> None:
    """Jobs that start, each with its replicas, and that nobody has a reason to visit."""
    queue, user, now = (
        Queue.objects.select_related("team").get(name="gpus"),
        User.objects.get(username="admin"),
        timezone.now(),
    )
    for run, replicas in runs.items():
        pk, _, uid = run.partition("-")
        spec = JobSpec(("torchrun", "train.py"), nodes=replicas, nproc_per_node=1).to_json()
        job = Job.objects.create(
            pk=int(pk), uid=uid, team=queue.team, queue=queue, user=user, name=f"recorded-{pk}", spec=spec, slots=replicas,
            phase="starting", attempt=1, launched_at=now, applied_at=now, next_reconcile_at=now + timedelta(days=1),
        )  # fmt: skip
        Replica.objects.bulk_create(
            Replica(job=job, attempt=1, role="worker", index=index, name=f"{run}-1-worker-{index}")
            for index in range(replicas)
        )


if __name__ == "__main__":
    main(json.load(sys.stdin))
