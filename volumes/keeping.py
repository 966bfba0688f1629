"""Rows about keepers: which folders of removed jobs are left in claims, and which claim has a keeper now. Written by tasks."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from queues import namespaces

from .models import AccessMode, KeeperVisit, LeftFolder, State, Volume
from .use import Use

BUSY = timedelta(seconds=60)  # longer than the calls of one turn for one keeper
PAUSE, LONGEST_PAUSE = timedelta(minutes=2), timedelta(days=1)
OLD = timedelta(days=1)  # how old the figures of a volume may be that nobody mounts
MOST_WORDS = 500
# A pod that looks at a disk of one node would keep a job on another node from starting.
SHARED = (AccessMode.RWX, AccessMode.ROX)


def note_left(rows: Iterable[LeftFolder]) -> None:
    """Write which folders a removed job leaves. In the transaction of its removal."""
    LeftFolder.objects.bulk_create(rows, ignore_conflicts=True)


def due_folders(now: datetime) -> QuerySet[LeftFolder]:
    """Return the folders whose turn it is, the oldest first, of claims whose keepers are neither at work nor in a pause."""
    kept = KeeperVisit.objects.filter(
        cluster=OuterRef("cluster"), namespace=OuterRef("namespace"), claim=OuterRef("claim")
    )
    is_not_now = Q(asked_at__isnull=False) | Q(next_try_at__gt=now)
    due = LeftFolder.objects.filter(~Exists(kept.filter(is_not_now)), next_try_at__lte=now)
    return due.order_by("next_try_at", "pk")


def stale_volumes(now: datetime) -> QuerySet[Volume]:
    """Return the volumes that several nodes can mount and whose figures are older than a day, the oldest first."""
    bound = Volume.objects.filter(state=State.BOUND, removal_asked_at=None, access_mode__in=SHARED)
    old = bound.exclude(used_at__gt=now - OLD).select_related("team")
    return old.order_by(F("used_at").asc(nulls_first=True), "pk")


def begin(
    *, cluster: str, namespace: str, claim: str, now: datetime, path: str = "", folders: Iterable[str] = (),
    volume: Volume | None = None,
) -> bool:  # fmt: skip
    """Note that a keeper is wanted. False while the claim has another one, or pauses after one that failed."""
    row, _ = KeeperVisit.objects.get_or_create(
        cluster=cluster, namespace=namespace, claim=claim, defaults={"next_try_at": now}
    )
    free = KeeperVisit.objects.filter(pk=row.pk, asked_at=None, next_try_at__lte=now)
    return bool(free.update(asked_at=now, path=path, folders=list(folders), volume=volume, busy_until=None))


def of_volume(volume: Volume) -> KeeperVisit | None:
    """Return the keeper that its claim has now, or the pause after one that failed; None where there is neither."""
    return KeeperVisit.objects.filter(cluster=volume.cluster, claim=volume.claim_name).order_by("-pk").first()


def begun(*, most: int) -> list[KeeperVisit]:
    """Return keepers that have not answered, the oldest first."""
    return list(KeeperVisit.objects.filter(asked_at__isnull=False).order_by("asked_at", "pk")[:most])


def take(row: KeeperVisit, *, now: datetime) -> bool:
    """Return whether this process alone works on it for a while."""
    is_free = Q(busy_until=None) | Q(busy_until__lte=now)
    free = KeeperVisit.objects.filter(is_free, pk=row.pk, asked_at=row.asked_at)
    return bool(free.update(busy_until=now + BUSY))


def release(row: KeeperVisit) -> None:
    """Let the next turn go on with it."""
    KeeperVisit.objects.filter(pk=row.pk).update(busy_until=None)


def answered(row: KeeperVisit, *, gone: Iterable[str], left: Mapping[str, str], use: Use | None, now: datetime) -> None:
    """Write what a keeper says, and forget it. Each folder of `left` pauses for itself; one that is in neither is due again."""
    theirs = LeftFolder.objects.filter(
        cluster=row.cluster, namespace=row.namespace, claim=row.claim, path=row.path, run__in=row.folders
    )
    theirs.filter(run__in=[*gone]).delete()
    for folder in theirs.filter(run__in=[*left]):
        folder.tries += 1
        folder.next_try_at = now + pause_after(folder.tries)
        folder.message = left[folder.run][:MOST_WORDS]
        folder.save(update_fields=["tries", "next_try_at", "message"])
    if use is not None and not row.folders:
        same = Q(pk=row.volume_id) | Q(cluster=row.cluster, claim=row.claim) & _of_its_namespace(row)
        written = min(datetime.fromtimestamp(use.written_at, UTC), now)
        # An agent that looks every minute may have said more meanwhile.
        Volume.objects.filter(same).exclude(used_at__gt=row.asked_at).update(
            total_bytes=use.total, free_bytes=use.free, written_at=written, used_at=now
        )
    KeeperVisit.objects.filter(pk=row.pk).delete()


def _of_its_namespace(row: KeeperVisit) -> Q:
    """Match volumes of teams whose claims are in the keeper's namespace: a claim of the same name elsewhere is another one."""
    teams = {one.namespace: one.team_id for one in namespaces.bound(row.cluster)}
    return Q(team=teams[row.namespace]) if row.namespace in teams else ~Q(team__in=teams.values())


def failed(row: KeeperVisit, *, message: str, now: datetime) -> timedelta:
    """Write that there is no answer. Return the pause until the claim may have another keeper."""
    pause = pause_after(row.tries + 1)
    KeeperVisit.objects.filter(pk=row.pk).update(
        asked_at=None, busy_until=None, tries=row.tries + 1, next_try_at=now + pause, message=message[:MOST_WORDS],
        path="", folders=[], volume=None,
    )  # fmt: skip
    return pause


def pause_after(tries: int) -> timedelta:
    """Return the pause after so many failures: 2 min, 4 min, 8 min, ... and a day at most."""
    return min(PAUSE * (1 << min(tries - 1, 20)), LONGEST_PAUSE)
