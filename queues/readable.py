"""Which queues a person may see, and which clusters with their nodes."""

from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import Act, readable_teams, teams_where

from .models import Queue


def readable_queues(user: User) -> QuerySet[Queue]:
    teams = readable_teams(user)
    found = Queue.objects.select_related("team", "flavor")
    return found if teams is None else found.filter(team_id__in=teams)


def readable_clusters(user: User) -> frozenset[str] | None:
    """Return the clusters whose nodes a person may see: those of the queues that they may submit to; None means all."""
    teams = teams_where(user, Act.SUBMIT, with_scope=Act.READ)
    if teams is None:
        return None
    return frozenset(Queue.objects.filter(team_id__in=teams).values_list("cluster", flat=True))
