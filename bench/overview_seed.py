"""Fill an installation for `bench/overview.py`: teams with a queue each, jobs that run on nodes, wait, failed today and ended.

Prints one JSON line: the cookie of a member of one team, and how many statements the page takes for an administrator.
"""

import json
import os
import sys
from collections.abc import Iterable
from datetime import timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.utils import timezone  # noqa: E402

from accounts.models import Membership, Team, User  # noqa: E402
from jobs.control import node_rows  # noqa: E402
from jobs.core.failure_kinds import Kind  # noqa: E402
from jobs.core.spec import JobSpec  # noqa: E402
from jobs.core.verdict import RoleView  # noqa: E402
from jobs.models import AttemptFailure, Job, Rank, Replica  # noqa: E402
from queues.models import Queue  # noqa: E402

from .nodes_cluster import name  # noqa: E402

CLUSTER, GPUS = "many", 8
RUNNING, WAITING, FAILED = 900, 1500, 300  # jobs of one node each; all others have succeeded
IDLE_EVERY, SILENT_EVERY = 50, 90


def main(jobs: int, teams: int) -> dict[str, object]:
    node_rows.write(CLUSTER)
    now = timezone.now()
    members = User.objects.bulk_create([User(username=f"member-{number}") for number in range(teams)])
    made = Team.objects.bulk_create([Team(name=f"team-{number}") for number in range(teams)])
    Membership.objects.bulk_create(
        [Membership(team=team, user=user, role="member") for team, user in zip(made, members, strict=True)]
    )
    queues = Queue.objects.bulk_create(
        [
            Queue(name=f"queue-{team.name}", team=team, cluster=CLUSTER, resource="gpu", nominal=GPUS * RUNNING // teams, gpus_per_node=GPUS)
            for team in made
        ]
    )  # fmt: skip
    phases = ["running"] * RUNNING + ["queued"] * WAITING + ["failed"] * FAILED
    phases += ["succeeded"] * (jobs - len(phases))
    spec = JobSpec(("torchrun", "train.py"), nodes=1, nproc_per_node=GPUS).to_json()
    roles = [RoleView("worker", 1, True, True, processes=GPUS, slots=GPUS).to_json()]
    rows = Job.objects.bulk_create(
        [
            Job(
                team=queues[number % teams].team, queue=queues[number % teams], user=members[number % teams], name=f"train-{number}",
                spec=spec, slots=GPUS, roles=roles, phase=phase, attempt=int(phase != "queued"), launched_at=now,
                admitted_at=None if phase == "queued" else now - timedelta(minutes=number % 300), next_reconcile_at=None,
                phase_since=now - timedelta(minutes=number % 200), finished_at=now if phase in ("failed", "succeeded") else None,
            )
            for number, phase in enumerate(phases)
        ],
        batch_size=1000,
    )  # fmt: skip
    _replicas(job for job in rows if job.phase == "running")
    kinds = [kind.value for kind in Kind][:6]
    AttemptFailure.objects.bulk_create(
        [
            AttemptFailure(job=job, attempt=1, kind=kinds[number % len(kinds)], certainty="sure", headline="an error", explanation="it failed", judged_at=now)
            for number, job in enumerate(row for row in rows if row.phase == "failed")
        ]
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    reader = Client(headers={"host": "127.0.0.1"})
    reader.force_login(members[0])
    cookie = f"{settings.SESSION_COOKIE_NAME}={reader.cookies[settings.SESSION_COOKIE_NAME].value}"
    return {"cookie": cookie, "jobs": len(rows), "teams": teams, "queries_of_an_administrator": _queries()}


def _replicas(jobs: Iterable[Job]) -> None:
    now = timezone.now()
    replicas = Replica.objects.bulk_create(
        [
            Replica(
                job=job, attempt=1, role="worker", index=0, name=f"{job.run}-1-worker-0", node=name(number), state="running", started_at=now,
                last_batch_at=now - timedelta(hours=1) if number % SILENT_EVERY == 0 else now,
            )
            for number, job in enumerate(jobs)
        ]
    )  # fmt: skip
    Rank.objects.bulk_create(
        [
            Rank(
                replica=one, job=one.job, attempt=1, rank=local, local_rank=local, state="running", gpu=0.9,
                gpu_idle_since=now - timedelta(hours=1) if number % IDLE_EVERY == 0 else None,
            )
            for number, one in enumerate(replicas) for local in range(GPUS)
        ],
        batch_size=2000,
    )  # fmt: skip


def _queries() -> int:
    reader = Client(headers={"host": "127.0.0.1"})
    reader.force_login(User.objects.get(username="admin"))
    with CaptureQueriesContext(connection) as found:
        assert reader.get("/").status_code == 200
    return len(found)


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
