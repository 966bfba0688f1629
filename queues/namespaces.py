"""Namespaces of clusters that belong to one team each. A job stays in the one that held when it was submitted."""

from collections.abc import Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from common.errors import Conflict

from .models import TeamNamespace


def of(team: Team | int, cluster: str, *, at: datetime | None = None) -> str:
    """Return the namespace of a team's jobs that are submitted now, or were at a time; empty: the cluster's own.

    One that belongs to another team by now is that team's: then it is the namespace of jobs that are submitted now.
    """
    if at is not None:
        (found,) = of_times(team, cluster, [at])
        return found
    rows = TeamNamespace.objects.filter(team=team, cluster=cluster, ended_at=None)
    return rows.values_list("namespace", flat=True).first() or ""


def of_times(team: Team | int, cluster: str, times: Iterable[datetime]) -> set[str]:
    """Return the namespaces of a team's jobs that were submitted at these times, as `of` does for one; two queries."""
    rows = list(TeamNamespace.objects.filter(team=team, cluster=cluster).order_by("-bound_at"))
    now = next((row.namespace for row in rows if row.ended_at is None), "")
    lost = TeamNamespace.objects.filter(cluster=cluster, namespace__in=[row.namespace for row in rows], ended_at=None)
    given_away = set(lost.exclude(team=team).values_list("namespace", flat=True)) if rows else set()
    found = set[str]()
    for at in times:
        held = (row.namespace for row in rows if row.bound_at <= at and (row.ended_at is None or row.ended_at > at))
        then = next(held, "")
        found.add(now if then in given_away else then)
    return found


def former(cluster: str, namespace: str, *, team: Team) -> TeamNamespace | None:
    """Return the last other team that had a namespace; None if there was none."""
    rows = TeamNamespace.objects.filter(cluster=cluster, namespace=namespace, ended_at__isnull=False)
    return rows.exclude(team=team).select_related("team").order_by("-ended_at").first()


def bound(cluster: str) -> list[TeamNamespace]:
    """Return the namespaces of a cluster that belong to teams now."""
    return list(TeamNamespace.objects.filter(cluster=cluster, ended_at=None).select_related("team", "bound_by"))


def bind(*, team: Team, cluster: str, namespace: str, by: User | None) -> TeamNamespace:
    """Note that the team's jobs are made there from now on. What must hold for it is checked before.

    Raises Conflict where somebody else bound the namespace, or the team, meanwhile.
    """
    try:
        with transaction.atomic():
            _end(team, cluster, by=by)
            row = TeamNamespace.objects.create(team=team, cluster=cluster, namespace=namespace, bound_by=by)
            audit.record(
                AuditAction.NAMESPACE_BOUND,
                by=by,
                on=team,
                team=team,
                after={"cluster": cluster, "namespace": namespace},
            )
    except IntegrityError as error:
        raise Conflict(f"namespace {namespace} of cluster {cluster} was given to another team meanwhile") from error
    return row


def release(*, team: Team, cluster: str, by: User | None) -> None:
    """Note that the team's jobs are made in the cluster's own namespace from now on. Idempotent."""
    with transaction.atomic():
        if before := _end(team, cluster, by=by):
            told = {"cluster": cluster, "namespace": before}
            audit.record(AuditAction.NAMESPACE_RELEASED, by=by, on=team, team=team, before=told)


def _end(team: Team, cluster: str, *, by: User | None) -> str:
    row = TeamNamespace.objects.select_for_update().filter(team=team, cluster=cluster, ended_at=None).first()
    if row is None:
        return ""
    row.ended_at, row.ended_by = timezone.now(), by
    row.save(update_fields=["ended_at", "ended_by"])
    return row.namespace
