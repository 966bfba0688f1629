"""The rows of an attempt: its own, and those of its replicas and ranks.

Those are inserted with INSERT ... SELECT: a large job has tens of thousands of similar rows.
"""

from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import F

from common.db import sql
from credentials import services as credentials
from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.core.verdict import RoleView
from jobs.core.volumes import mounts
from jobs.models import Attempt, Job, Rank, Replica
from jobs.models.inserts import begun, defaults
from queues import namespaces as namespaces_of_teams

_REPLICA, _REPLICA_DEFAULTS, _REPLICA_REST = begun(Replica, ("job_id", "attempt", "launch_id", "role", "index", "name"))
_INSERT_REPLICAS = sql.load("jobs/sql/insert_replicas.sql", columns=_REPLICA, defaults=_REPLICA_DEFAULTS)
_RANK, _RANK_DEFAULTS, _RANK_REST = begun(Rank, ("replica_id", "job_id", "attempt", "rank", "local_rank"))
_INSERT_RANKS = sql.load("jobs/sql/insert_ranks.sql", columns=_RANK, defaults=_RANK_DEFAULTS)


# What a step changes while the attempt lasts, and with its end: by then the job's own columns may be those of what follows.
_LASTING, _ENDING = ("applied_at", "running_at", "message"), ("ended_at", "outcome", "message")


def write(job: Job, *, before: str, now: datetime) -> int | None:
    """Write the row of the attempt that a step began, goes on with or ended; return its id, None for a step between two.

    `before`: the phase before the step, whose columns `job` has already.
    """
    if not job.attempt or job.launched_at is None or not {before, job.phase} & ON_CLUSTER:
        return None
    is_over = job.phase not in ON_CLUSTER
    is_new = job.phase == Phase.STARTING != before
    row = Attempt(
        secrets=_secrets(job) if is_new else None,
        job=job, number=job.attempt, cluster=job.queue.cluster, namespace=_namespace_of(job, is_new=is_new),
        workspace_id=job.workspace_id, launched_at=job.launched_at, applied_at=job.applied_at, running_at=job.running_at,
        ended_at=now if is_over else None, outcome=job.phase if is_over else "", reason=job.stop_reason, message=job.message,
    )  # fmt: skip
    changing = [*(_ENDING if is_over else _LASTING), *(["reason"] if job.stop_reason else [])]
    (row,) = Attempt.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["job", "number"], update_fields=changing
    )
    return row.pk


def _namespace_of(job: Job, *, is_new: bool) -> str:
    """Return where an attempt that begins is made. A row that an older process did not write is of the cluster's own."""
    home = clusters.namespace_of(job.queue.cluster)
    theirs = namespaces_of_teams.of(job.team_id, job.queue.cluster, at=job.created_at) if is_new and home else ""
    return theirs or home


def _secrets(job: Job) -> dict[str, int] | None:
    """Return the versions of the team's secrets that an attempt begins with, so that all its replicas get the same."""
    names = mounts(job.job_spec.team_secrets)
    return credentials.newest(names, team=job.team) if names else None


def namespace(job: Job) -> str:
    """Return the namespace of a job's newest attempt; empty where its row does not say."""
    rows = Attempt.objects.filter(job=job, number=job.attempt)
    return rows.values_list("namespace", flat=True).first() or ""


def former_namespaces(job: Job, attempt: int) -> tuple[str, ...]:
    """Return the namespaces in which attempts before this one were made."""
    rows = Attempt.objects.filter(job=job, number__lt=attempt).exclude(namespace="")
    return tuple(rows.order_by("namespace").values_list("namespace", flat=True).distinct())


def namespaces(cluster: str) -> set[str]:
    """Return the namespaces in which attempts of a cluster last, by their rows."""
    lasting = Attempt.objects.filter(
        job__queue__cluster=cluster, job__phase__in=ON_CLUSTER, number=F("job__attempt")
    ).exclude(namespace="")  # fmt: skip
    return set(lasting.order_by().values_list("namespace", flat=True).distinct())


def insert(*, job: int, run: str, attempt: int, launch: int, role: RoleView) -> None:
    """Insert the rows of a role's replicas, and those of the ranks in each of them."""
    place: dict[str, Any] = {"job": job, "attempt": attempt, "role": role.name}
    replicas = {
        "launch": launch,
        "prefix": f"{run}-{attempt}-{role.name}-",
        "replicas": role.replicas,
        **defaults(_REPLICA_REST),
    }
    ranks = {"first_rank": role.first_rank, "processes": role.processes, **defaults(_RANK_REST)}
    with connection.cursor() as cursor:
        cursor.execute(_INSERT_REPLICAS, {**place, **replicas})
        cursor.execute(_INSERT_RANKS, {**place, **ranks})
