"""Nodes that verdicts blame for the failures of several jobs: proposed to platform administrators, who may exclude them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models.functions import Coalesce

from jobs.models import AttemptFailure, Replica
from queues import excluded

SINCE = timedelta(days=1)
JOBS = 2  # whose failures within a day make a node suspect
CLUSTER = "of_cluster"  # in which the attempt ran
MOST = 5000  # verdicts that are looked at, newest first


@dataclass(frozen=True)
class Suspect:
    """A node, and the newest of the verdicts on each job that blame it."""

    cluster: str
    name: str
    failures: tuple[AttemptFailure, ...]

    @property
    def jobs(self) -> int:
        return len(self.failures)

    @property
    def reason(self) -> str:
        """What to write down where it is excluded."""
        return f"{self.jobs} jobs failed on it within a day; the last one: {self.failures[0].headline}"[
            : excluded.MOST_REASON
        ]


def suspects(now: datetime, *, clusters: Iterable[str]) -> list[Suspect]:
    """Return the nodes of these clusters that failed several jobs within a day, worst first. Excluded ones are left out.

    Of one that was readmitted only what happened since counts.
    """
    since, known = excluded.readmitted(), set(clusters)
    out = {(cluster, name) for cluster in known for name in excluded.names(cluster)}
    found: dict[tuple[str, str], dict[int, AttemptFailure]] = {}
    for one in _blaming(now - SINCE):
        key = (getattr(one, CLUSTER), one.node)
        is_old = key in since and one.judged_at <= since[key]
        if key[0] in known and key not in out and not is_old:
            found.setdefault(key, {}).setdefault(one.job_id, one)
    several = [Suspect(*key, tuple(jobs.values())) for key, jobs in found.items() if len(jobs) >= JOBS]
    return sorted(several, key=lambda one: (-one.jobs, one.cluster, one.name))


def _blaming(since: datetime) -> Iterable[AttemptFailure]:
    rows = AttemptFailure.objects.exclude(node="").filter(judged_at__gt=since).select_related("job__team")
    rows = rows.annotate(**{CLUSTER: Coalesce("launch__cluster", "job__queue__cluster")})
    return rows.defer("traceback", "last_lines").order_by("-judged_at", "-id")[:MOST]


def blamed_by(job: int) -> tuple[str, ...]:
    """Return the nodes that ended attempts of a job, which its next ones try to avoid."""
    rows = AttemptFailure.objects.filter(job=job).exclude(node="")
    return tuple(sorted(set(rows.values_list("node", flat=True))))


def running_on(cluster: str, names: Iterable[str]) -> dict[str, int]:
    """Return how many replicas run on each of these nodes; nodes without any are left out."""
    rows = Replica.objects.filter(
        node__in=list(names), closed_at=None, ended_at=None, job__queue__cluster=cluster, job__finished_at=None
    )
    return Counter(rows.values_list("node", flat=True))
