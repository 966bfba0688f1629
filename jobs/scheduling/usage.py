"""The current use of a queue, and warnings about it."""

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, Sum, TextField, Value
from django.db.models.functions import Coalesce

from common.text import listed
from jobs.models import Job, in_order
from queues import sharing
from queues.models import Queue, QueueVersion
from queues.resources import describe


def with_use(queues: QuerySet[Queue]) -> QuerySet[Any]:
    """Annotate queues with `used`, a sum over rows and never a counter, and `has_others` for `over_quota_warning`."""
    held = (
        Job.objects.holding_quota().filter(queue=OuterRef("pk")).order_by().values("queue").annotate(total=Sum("slots"))
    )
    newest = QueueVersion.objects.filter(queue=OuterRef("pk")).order_by("-number")
    versions = {
        "version": Coalesce(Subquery(newest.values("number")[:1]), 1),
        "check_state": Coalesce(Subquery(newest.values("check_state")[:1]), Value("")),
        "check_words": Coalesce(Subquery(newest.values("check_words")[:1]), Value("", TextField())),
    }
    return queues.annotate(
        **versions, used=Coalesce(Subquery(held.values("total")), 0), has_others=sharing.with_others()
    )


def over_quota_warning(queue: Queue, *, used: int) -> str:
    """Return what users should know about a queue; empty if there is nothing."""
    sentences = [_over_quota(queue, used), sharing.NOTICE if sharing.has_others(queue) else ""]
    return "; ".join(words for words in sentences if words)


def consequences(queue: Any, *, slots: int, is_open: bool, drains: bool = False) -> list[str]:
    """Return in sentences what a change of a queue would do to its jobs. `queue` has `used`, as `with_use` gives it."""
    waiting = list(in_order(Job.objects.waiting().filter(queue=queue)).values_list("pk", "name", "slots"))
    sentences = []
    if slots > 2 * queue.nominal:
        sentences.append(f"{slots:,} is more than twice today's quota of {queue.nominal:,}.")
    if slots < queue.nominal and queue.used > slots:
        sentences.append(
            f"Jobs hold {queue.used} of it now, {queue.used - slots} more than the new quota: none is stopped, and none "
            f"starts until enough is free."
        )
    never = [f"{name} (job {pk}, {wants})" for pk, name, wants in waiting if slots < wants <= queue.nominal]
    if never:
        sentences.append(f"Larger than the new quota, so never to start with it: {listed(never, NAMED)}.")
    if queue.is_open and not is_open and waiting:
        sentences.append(f"{_jobs(len(waiting))} will wait until the queue is opened again; running jobs go on.")
    if drains and not is_open and queue.used:
        sentences.append(
            f"Running jobs, which hold {describe({queue.resource: queue.used})}, are asked to stop: they get their grace, and "
            "wait in the queue until it is opened again."
        )
    if is_open and waiting and (slots > queue.nominal or not queue.is_open):
        sentences.append(_starting(waiting, max(0, slots - queue.used)))
    return sentences


NAMED = 3  # jobs in one sentence


def _starting(waiting: list[tuple[int, str, int]], free: int) -> str:
    """Say which of the first waiting jobs fit into what is free; the queue is worked off in order."""
    fitting = []
    for pk, name, wants in waiting:
        if wants > free:
            break
        free -= wants
        fitting.append(f"{name} (job {pk})")
    if not fitting:
        return "No waiting job starts by that alone."
    return f"There is room at once for {listed(fitting, NAMED)}."


def _jobs(count: int) -> str:
    return f"{count} waiting job{'' if count == 1 else 's'}"


def _over_quota(queue: Queue, used: int) -> str:
    """Return a warning if jobs hold more than the quota: lowering a quota ends no job."""
    over = used - queue.nominal
    if over <= 0:
        return ""
    if queue.flavor_id is not None:
        return (
            f"jobs hold {describe({queue.resource: used})}, {over} beyond the queue's own: they are given back when those whose "
            "they are need them"
        )
    return (
        f"jobs hold {describe({queue.resource: used})}, {over} more than the quota; no job is stopped for that, and none "
        f"starts until enough is free"
    )
