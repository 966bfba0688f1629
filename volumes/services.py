"""The only writers of what is wanted of volumes: administrators of the team. What a cluster says is written by tasks."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from accounts import audit, in_use, members
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import Act, require
from common.errors import Conflict, InvalidInput, Problem
from common.signals import doorbell
from queues import allowed, clusters, quantities

from .models import AccessMode, JobStorage, State, Volume
from .use import Use

MOST = 100  # of one team
IN_USE = "volume"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
CHANGEABLE = ("size", "mount_path", "is_read_only")
_CLASS = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")


def of_team(user: User, team: str) -> tuple[Team, QuerySet[Volume]]:
    """Return a team that the user may read, and its volumes. Raises Http404 for any other."""
    found = members.readable_team(user, team)
    return found, Volume.objects.filter(team=found).select_related("team")


def one_of(user: User, team: str, name: str) -> Volume:
    """Return a volume that the user may read. Raises Http404."""
    found, volumes = of_team(user, team)
    volume = volumes.filter(name=name).first()
    if volume is None:
        raise Http404(f"team {found.name} has no volume named {name}")
    return volume


def used_by(volume: Volume) -> list[str]:
    """Return which open jobs and queues name it, as phrases."""
    return in_use.of(IN_USE, team=volume.team, name=volume.name)


def create(*, team: Team, by: User, name: str, cluster: str, **values: Any) -> Volume:
    """Return the new volume; its storage is made with its first use.

    Raises NotAllowed, InvalidInput with one problem per field, and Conflict for a taken name.
    """
    require(by, Act.MANAGE, team)
    row = Volume(team=team, name=name, cluster=cluster, created_by=by, **values)
    if problems := _problems(row):
        raise InvalidInput(*problems)
    try:
        with transaction.atomic():
            Team.objects.select_for_update(no_key=True).get(pk=team.pk)
            if Volume.objects.filter(team=team).count() >= MOST:
                raise Conflict(f"team {team.name} has {MOST} volumes already; remove one first", "name", name)
            row.save(force_insert=True)
            audit.record(AuditAction.VOLUME_MADE, by=by, on=row, team=team, after=described(row))
    except IntegrityError as error:
        raise Conflict(f"team {team.name} has a volume named {name} already; choose another name", "name", name) from (
            error
        )
    doorbell.poke("jobs.refresh_volumes")
    return row


def change(*, volume: Volume, by: User, **values: Any) -> Volume:
    """Change some of CHANGEABLE. A volume grows and never shrinks. Jobs that run keep their mounts."""
    require(by, Act.MANAGE, volume.team)
    with transaction.atomic():
        row = _locked(volume)
        before, old_size = described(row), row.size
        for name, value in values.items():
            setattr(row, name, value)
        problems = _problems(row)
        if row.size and old_size and quantities.read(row.size) < quantities.read(old_size):
            problems.append(Problem("size", row.size, f"is less than {old_size}: a volume can grow and never shrink"))
        if problems:
            raise InvalidInput(*problems)
        after = described(row)
        changed = [name for name in after if after[name] != before[name]]
        if not changed:
            return row
        row.save(update_fields=changed)
        old, new = ({name: one[name] for name in changed} for one in (before, after))
        audit.record(AuditAction.VOLUME_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
        doorbell.poke("jobs.refresh_volumes")
    return row


def remove(*, volume: Volume, by: User) -> Volume:
    """Ask for its deletion: with its data, where the claim is Muster's own. Raises Conflict, naming the jobs that would break."""
    require(by, Act.MANAGE, volume.team)
    with transaction.atomic():
        row = _locked(volume)
        in_use.refuse(IN_USE, what="volume", team=row.team, name=row.name)
        if row.removal_asked_at is None:
            row.removal_asked_at, row.state = timezone.now(), State.REMOVING
            row.save(update_fields=["removal_asked_at", "state"])
            audit.record(AuditAction.VOLUME_REMOVED, by=by, on=row, team=row.team, before=described(row))
        doorbell.poke("jobs.refresh_volumes")
    return row


def hold(names: list[str], *, team: Team) -> None:
    """Keep these volumes until the transaction ends. Raises Conflict for one that is being deleted."""
    rows = Volume.objects.select_for_update(of=("self",), no_key=True).filter(team=team, name__in=names)
    for row in rows.order_by("pk"):
        if row.removal_asked_at is not None:
            raise Conflict(f"volume {row.name} of team {team.name} is being deleted", "volumes", row.name)


def named(names: list[str], *, team: Team) -> dict[str, Volume]:
    return {row.name: row for row in Volume.objects.filter(team=team, name__in=names).select_related("team")}


# -- claims of single jobs, which their queue's template asks for


def note_job_storage(rows: Iterable[JobStorage]) -> None:
    """Write that claims are about to be made for a job, so that they are surely deleted. Idempotent."""
    JobStorage.objects.bulk_create(rows, ignore_conflicts=True)


def of_run(run: str) -> list[JobStorage]:
    return list(JobStorage.objects.filter(run=run).select_related("team").order_by("kind"))


def forget_job_storage(row: JobStorage) -> None:
    JobStorage.objects.filter(pk=row.pk).delete()


# -- what tasks write


def to_visit(*, older_than: datetime) -> list[Volume]:
    """Return the volumes whose storage the tasks should look at: what is asked for, then what was seen long ago."""
    rows = Volume.objects.select_related("team").exclude(checked_at__gt=older_than, removal_asked_at=None)
    return list(rows.order_by("checked_at", "pk")[:200])


def record(volume: Volume, *, state: str, capacity: str, message: str, now: datetime) -> None:
    """Write what its cluster says of it; nothing while it is being deleted."""
    Volume.objects.filter(pk=volume.pk, removal_asked_at=None).update(
        state=state, capacity=capacity, message=message, checked_at=now
    )


def record_use(*, team: int, cluster: str, uses: Mapping[str, Use], now: datetime) -> None:
    """Write what an agent says of the file systems that it mounts, by the volume's name."""
    for name, one in uses.items():
        written = datetime.fromtimestamp(one.written_at, UTC)
        Volume.objects.filter(team=team, cluster=cluster, name=name).update(
            total_bytes=one.total, free_bytes=one.free, written_at=min(written, now), used_at=now
        )


def forget(volume: Volume) -> None:
    """Delete the row of a volume whose storage is gone."""
    Volume.objects.filter(pk=volume.pk).delete()


def described(row: Volume) -> dict[str, Any]:
    names = ("cluster", "claim", "size", "storage_class", "access_mode", "mount_path", "is_read_only")
    return {name: getattr(row, name) for name in names}


def _locked(volume: Volume) -> Volume:
    rows = Volume.objects.select_for_update(of=("self",)).select_related("team")
    found = rows.filter(pk=volume.pk).first()
    if found is None:
        raise Http404(f"volume {volume.name} was removed meanwhile")
    if found.removal_asked_at is not None:
        raise Conflict(f"volume {found.name} is being deleted", "name", found.name)
    return found


def _problems(row: Volume) -> list[Problem]:
    """Return everything that is wrong with what is wanted, beside what only the cluster knows."""
    found = []
    if not NAME.fullmatch(row.name):
        found.append(Problem("name", row.name, "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"))
    if not clusters.is_known(row.cluster):
        found.append(Problem("cluster", row.cluster, f"must be one of {', '.join(clusters.names())}"))
    if row.access_mode not in AccessMode.values:
        words = f"is not known; choose from {', '.join(AccessMode.values)}"
        found.append(Problem("access_mode", row.access_mode, words))
    if row.storage_class and not _CLASS.match(row.storage_class):
        found.append(Problem("storage_class", row.storage_class, "is not the name of a class; use a-z, 0-9, - and ."))
    if row.claim:
        wanted = [("claim", "claim", row.claim)]
        found += allowed.problems(wanted, team=row.team, cluster=row.cluster)
        if row.size or row.storage_class:
            field = "size" if row.size else "storage_class"
            found.append(Problem(field, getattr(row, field), "is that of the existing claim; omit it"))
    elif not row.size:
        found.append(
            Problem("size", row.size, "is missing; give a size such as 512Gi, or the name of an existing claim")
        )
    else:
        try:
            quantities.parse(row.size, quantities.MEMORY)
        except ValueError as error:
            found.append(Problem("size", row.size, str(error).replace("memory", "size")))
    return found
