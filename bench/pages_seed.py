"""Fill the installation's database with one running job and an hour of its metrics, through ingest, a point each 5 s and rank.
Prints one JSON line: the job, and how long loading and rolling up took."""

import json
import math
import os
import sys
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.db import connection  # noqa: E402
from django.db.models import Max  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.models import User  # noqa: E402
from jobs.analysis import rollups  # noqa: E402
from jobs.core.agent_identity import AgentIdentity  # noqa: E402
from jobs.core.batch import Batch, Item  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.ingest import apply  # noqa: E402
from jobs.models import Job, JobEvent, MetricChunk, Rank, Replica, RollupPosition  # noqa: E402
from queues.models import Queue  # noqa: E402

PER_NODE, SECONDS, EVERY, PER_BATCH = 8, 3600, 5, 60
NAMES = ("loss", "accuracy", "grad_norm", "lr", "tokens/s")


def main(ranks: int) -> dict[str, object]:
    job, stored, began, cpu = _job(ranks), _chunk_bytes(), time.monotonic(), time.process_time()
    start = timezone.now().timestamp() - SECONDS
    for seq in range(SECONDS // EVERY // PER_BATCH):
        for index in range(ranks // PER_NODE):
            mine = range(index * PER_NODE, (index + 1) * PER_NODE)
            items = [_points(rank, seq, start) for rank in mine]
            apply.apply_batch(
                identity=AgentIdentity(job.pk, job.run, 1, "worker", index), batch=Batch(seq + 1, 0.0, tuple(items))
            )
    loaded, loaded_cpu = time.monotonic(), time.process_time()
    spent, now = 0.0, time.monotonic()
    while (found := rollups.roll_up(now=timezone.now())) or _is_behind(job):
        spent, now = spent + (time.monotonic() - now if found else 0.0), time.monotonic()
        if not found:  # computed while it was being loaded, and so to be computed again after a minute
            time.sleep(0.5)
            now = time.monotonic()
    rolled, rolled_cpu = time.monotonic(), time.process_time()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    points = ranks // PER_NODE * PER_NODE * len(NAMES) * (SECONDS // EVERY)
    return {
        "job": job.pk,
        "points": points,
        "load_cpu_s": round(loaded_cpu - cpu, 2),
        "rolling_up_cpu_s": round(rolled_cpu - loaded_cpu, 2),
        "chunk_bytes": _chunk_bytes() - stored,
        "points_per_s": round(points / (rolled - began)),
        "load_s": round(loaded - began, 1),
        "until_rolled_up_s": round(rolled - loaded, 1),
        "rolling_up_s": round(spent, 1),
    }


def _job(ranks: int) -> Job:
    queue, user, now = Queue.objects.select_related("team").get(), User.objects.get(username="admin"), timezone.now()
    spec = JobSpec(("torchrun", "train.py"), nodes=ranks // PER_NODE, nproc_per_node=PER_NODE).to_json()
    job = Job.objects.create(
        team=queue.team, queue=queue, user=user, name=f"with-{ranks}-ranks", spec=spec, slots=ranks, phase="running", attempt=1,
        launched_at=now, running_at=now, next_reconcile_at=None,
    )  # fmt: skip
    JobEvent.objects.bulk_create(
        JobEvent(job=job, kind="step", phase=phase, message=phase, attempt=1)
        for phase in ("queued", "admitted", "running")
    )
    replicas = Replica.objects.bulk_create(
        Replica(job=job, attempt=1, role="worker", index=index, name=f"{job.run}-1-worker-{index}", state="running",
                node=f"gpu-node-{index}", started_at=now, last_batch_at=now)
        for index in range(ranks // PER_NODE)
    )  # fmt: skip
    Rank.objects.bulk_create(
        Rank(replica=one, job=job, attempt=1, rank=PER_NODE * one.index + local, local_rank=local, state="running", started_at=now,
             last_line_at=now, step=12_000, cpu=0.9, rss_bytes=9e8, gpu=0.93, gpu_mem_bytes=7e10)
        for one in replicas for local in range(PER_NODE)
    )  # fmt: skip
    return job


def _chunk_bytes() -> int:
    """Of all points in the database, with indexes; the table's file never shrinks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('jobs_metricchunk')")
        return int(cursor.fetchone()[0])


def _points(rank: int, seq: int, start: float) -> Item:
    first = seq * PER_BATCH
    rows = [
        [start + EVERY * number, number, {name: _value(name, rank, number) for name in NAMES}]
        for number in range(first, first + PER_BATCH)
    ]
    return Item("metrics", {"kind": "metrics", "rank": rank, "points": rows})


def _value(name: str, rank: int, number: int) -> float:
    noise = math.sin(rank * 12.9898 + number * 78.233)
    base = {"loss": 2.3 * math.exp(-number / 200), "accuracy": 1 - math.exp(-number / 200), "lr": 3e-4}.get(name, 100.0)
    return round(base * (1 + 0.05 * noise) + (0.3 if rank % 997 == 7 else 0.0), 6)


def _is_behind(job: Job) -> bool:
    """Whether chunks are yet to be read, or a bucket that is over is still due; the tasks process may be at it, too."""
    newest = MetricChunk.objects.aggregate(id=Max("id"))["id"]
    if RollupPosition.objects.filter(read__lt=newest).exists():
        return True
    return job.rollups.filter(is_due=True, begins__lt=timezone.now().timestamp() - 60).exists()


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
