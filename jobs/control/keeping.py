"""Have keepers look after claims: delete the folders of removed jobs, and see how full volumes are that no job mounts.

Repeated by beat. What is wanted is noted before a pod is made (`KeeperVisit`), and forgotten only with its answer: a
process that dies leaves no pod that nobody knows, and no folder that nobody deletes.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from common.errors import InvalidInput, Refused, Unreachable
from common.signals import doorbell
from jobs import clusters
from jobs.clusters import Keeps
from jobs.core import volumes as entries
from jobs.core.keeping import MOST_FOLDERS, Errand, Kept
from jobs.core.lifecycle import ON_CLUSTER
from jobs.models import Job
from queues import namespaces
from volumes import keeping
from volumes.models import KeeperVisit, LeftFolder, Volume

log = logging.getLogger(__name__)
MOST_DUE = 1000  # folders that are looked at in one turn
MOST_LOOKS = 3  # keepers that one turn begins only to see how full a volume is
MOST_VISITS = 10  # keepers that one turn goes on with
SOON = timedelta(seconds=15)  # in which a pod has usually ended


def keep_all(*, now: datetime) -> int:
    """Begin what is due, and go one step on with every keeper. Return how many there were."""
    is_any_new = bool(_begin_deleting(now) + _begin_looking(now))
    count = 0
    for visit in keeping.begun(most=MOST_VISITS):
        if keeping.take(visit, now=timezone.now()):  # each turn lasts a few calls: the clock has moved on
            _go_on(visit, now)
            count += 1
    if is_any_new:
        doorbell.poke_now("jobs.keep", after_seconds=SOON.total_seconds())
    return count


def _begin_deleting(now: datetime) -> int:
    """Note an errand for each claim in which folders of removed jobs are left. Return how many."""
    where: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    due = keeping.due_folders(now).filter(cluster__in=clusters.names())
    for folder in _deletable(due[:MOST_DUE]):
        if _keeps(folder.cluster) is not None:
            where[folder.cluster, folder.namespace, folder.claim, folder.path].append(folder.run)
    return sum(
        keeping.begin(
            cluster=cluster, namespace=namespace, claim=claim, path=path, folders=runs[:MOST_FOLDERS], now=now
        )
        for (cluster, namespace, claim, path), runs in where.items()
    )


def _deletable(folders: Iterable[LeftFolder]) -> list[LeftFolder]:
    """Return those that nobody uses: their jobs have no row, and no job that has not ended began from their checkpoints."""
    found = list(folders)
    ids = [folder.job for folder in found]
    used = set(Job.objects.filter(pk__in=ids).values_list("pk", flat=True))
    readers = Job.objects.filter(finished_at=None, spec__from_job__in=ids)
    used |= set(readers.values_list("spec__from_job", flat=True))
    return [folder for folder in found if folder.job not in used]


def _begin_looking(now: datetime) -> int:
    """Note that volumes are to be looked at whose figures are old, a few of them. Return how many."""
    count = 0
    for volume in keeping.stale_volumes(now):
        if count >= MOST_LOOKS:
            break
        cluster = _keeps(volume.cluster)
        if cluster is None or _is_mounted(volume):
            continue
        namespace = namespaces.of(volume.team_id, volume.cluster) or clusters.namespace_of(volume.cluster)
        count += keeping.begin(
            cluster=volume.cluster, namespace=namespace, claim=volume.claim_name, volume=volume, now=now
        )
    return count


def _is_mounted(volume: Volume) -> bool:
    """Whether a job that is on the cluster mounts it: then its agents look."""
    jobs = Job.objects.filter(team=volume.team, phase__in=ON_CLUSTER, spec__has_key="volumes").only("spec")
    return any(volume.name in entries.mounts(job.spec["volumes"]) for job in jobs)


def _go_on(visit: KeeperVisit, now: datetime) -> None:
    cluster = _keeps(visit.cluster)
    if cluster is None:  # its cluster is not configured any more; what is left stays noted
        _failed(visit, f"{visit.cluster} is no cluster that has keepers", now)
        return
    try:
        kept = cluster.keep(Errand(visit.claim, visit.namespace, visit.path, tuple(visit.folders)))
    except Unreachable as error:
        log.info("%s: %s", visit, error)
        kept = None
    except (Refused, InvalidInput) as error:
        kept = Kept(problem=str(error))
    if kept is None:
        keeping.release(visit)
    elif kept.problem:
        _failed(visit, kept.problem, now)
    else:
        _answered(visit, kept, now)


def _answered(visit: KeeperVisit, kept: Kept, now: datetime) -> None:
    if kept.gone:
        log.info("%s deleted the folders of %s removed jobs", visit, len(kept.gone))
    for run, reason in kept.left.items():
        log.warning("%s cannot delete folder %s of a removed job: %s; it is tried again", visit, run, reason)
    keeping.answered(visit, gone=kept.gone, left=kept.left, use=kept.use, now=now)


def _failed(visit: KeeperVisit, message: str, now: datetime) -> None:
    pause = keeping.failed(visit, message=message, now=now)
    log.warning("%s did not do its work: %s; the next one is made in %s", visit, message, pause)


def _keeps(alias: str) -> Keeps | None:
    cluster = clusters.get(alias) if clusters.is_known(alias) else None
    return cluster if isinstance(cluster, Keeps) else None
