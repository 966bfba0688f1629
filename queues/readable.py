"""Which queues a person may see."""

from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import readable_teams

from .models import Queue


def readable_queues(user: User) -> QuerySet[Queue]:
    teams = readable_teams(user)
    found = Queue.objects.select_related("team")
    return found if teams is None else found.filter(team_id__in=teams)
