"""The current use of a queue, and warnings about it."""

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from jobs.models import Job
from queues import sharing
from queues.models import Queue
from queues.resources import describe


def with_use(queues: QuerySet[Queue]) -> QuerySet[Any]:
    """Annotate queues with `used`, a sum over rows and never a counter, and `has_others` for `over_quota_warning`."""
    held = (
        Job.objects.holding_quota().filter(queue=OuterRef("pk")).order_by().values("queue").annotate(total=Sum("slots"))
    )
    return queues.annotate(used=Coalesce(Subquery(held.values("total")), 0), has_others=sharing.with_others())


def over_quota_warning(queue: Queue, *, used: int) -> str:
    """Return what users should know about a queue; empty if there is nothing."""
    said = [_over_quota(queue, used), sharing.NOTICE if sharing.has_others(queue) else ""]
    return "; ".join(words for words in said if words)


def _over_quota(queue: Queue, used: int) -> str:
    """Return a warning if jobs hold more than the quota: lowering a quota ends no job."""
    over = used - queue.nominal
    if over <= 0:
        return ""
    return (
        f"jobs hold {describe({queue.resource: used})}, {over} more than the quota; no job is stopped for that, and none "
        f"starts until enough is free"
    )
