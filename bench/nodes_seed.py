"""Fill the nodes of a cluster with running jobs, and look at the nodes as beat does. Prints one JSON line: how long looks of
unchanged and of changed nodes took, with their statements, and the queries of the cluster's page."""

import json
import os
import statistics
import sys
import time
from dataclasses import replace
from datetime import timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.models import User  # noqa: E402
from jobs import clusters  # noqa: E402
from jobs.control import node_rows  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.core.verdict import RoleView  # noqa: E402
from jobs.models import ClusterNode, Job, Rank, Replica  # noqa: E402
from queues.models import Queue  # noqa: E402

from .nodes_cluster import ManyNodes, name  # noqa: E402

PER_NODE, LOOKS, CLUSTER = 8, 20, "many"
FREE_EVERY, IDLE_EVERY = 20, 25  # of the nodes: that one holds nothing, and that one's GPUs are idle


def main(nodes: int, nodes_of_a_job: int, gpus_of_a_replica: int) -> dict[str, object]:
    cluster = clusters.get(CLUSTER)
    assert isinstance(cluster, ManyNodes)
    node_rows.write(CLUSTER)
    count = _fill(nodes, nodes_of_a_job, gpus_of_a_replica)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    unchanged = [_look() for _ in range(LOOKS)]
    listed = cluster.listed or []
    changed = []
    for turn in range(LOOKS):
        cluster.listed = [replace(one, others=1 + turn % 2) for one in listed]
        changed.append(_look())
    cluster.listed = listed
    _look()
    rows = ClusterNode.objects.filter(cluster=CLUSTER, gone_at=None).count()
    return {
        "nodes": rows, "replicas": count, "queries_of_a_page": _queries(),
        "unchanged_ms": _median(unchanged, 0), "unchanged_statements": _median(unchanged, 1),
        "changed_ms": _median(changed, 0), "changed_statements": _median(changed, 1),
    }  # fmt: skip


def _fill(nodes: int, nodes_of_a_job: int, gpus: int) -> int:
    user, now = User.objects.get(username="admin"), timezone.now()
    queue, _ = Queue.objects.update_or_create(
        name="many", defaults={"team": Queue.objects.select_related("team").get(name="default").team, "cluster": CLUSTER, "resource": "gpu", "nominal": 10**6, "gpus_per_node": PER_NODE},
    )  # fmt: skip
    Job.objects.filter(queue=queue).delete()
    places = [name(number) for number in range(nodes) if number % FREE_EVERY for _ in range(PER_NODE // gpus)]
    parts = [places[begin : begin + nodes_of_a_job] for begin in range(0, len(places), nodes_of_a_job)]
    spec = JobSpec(("torchrun", "train.py"), nodes=nodes_of_a_job, nproc_per_node=gpus).to_json()
    jobs = Job.objects.bulk_create(
        [
            Job(
                team=queue.team, queue=queue, user=user, name=f"train-{number}", spec=spec, slots=gpus * len(part),
                roles=[RoleView("worker", len(part), True, True, processes=gpus, slots=gpus).to_json()], phase="running",
                attempt=1, launched_at=now, running_at=now, next_reconcile_at=None,
            )
            for number, part in enumerate(parts)
        ],
        batch_size=1000,
    )  # fmt: skip
    replicas = Replica.objects.bulk_create(
        [
            Replica(job=job, attempt=1, role="worker", index=index, name=f"{job.run}-1-worker-{index}", node=node,
                    state="running", started_at=now, last_batch_at=now)
            for job, part in zip(jobs, parts, strict=True) for index, node in enumerate(part)
        ],
        batch_size=2000,
    )  # fmt: skip
    Rank.objects.bulk_create(
        [
            Rank(replica=one, job=one.job, attempt=1, rank=gpus * one.index + local, local_rank=local, state="running", gpu=0.9,
                 gpu_idle_since=None if number % IDLE_EVERY else now - timedelta(minutes=9),
                 gpu_xid=None if number % 333 else 79)
            for number, one in enumerate(replicas) for local in range(gpus)
        ],
        batch_size=2000,
    )  # fmt: skip
    return len(replicas)


def _look() -> tuple[float, int]:
    """Milliseconds and statements of one look, those that begin and end its transaction included."""
    began = time.perf_counter()
    with CaptureQueriesContext(connection) as found:
        node_rows.write(CLUSTER)
    return 1000 * (time.perf_counter() - began), len(found)


def _median(found: list[tuple[float, int]], column: int) -> float:
    return round(statistics.median(one[column] for one in found), 1)


def _queries() -> int:
    reader = Client(headers={"host": "127.0.0.1"})
    reader.force_login(User.objects.get(username="admin"))
    with CaptureQueriesContext(connection) as found:
        assert reader.get(f"/clusters/{CLUSTER}").status_code == 200
    return len(found)


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
