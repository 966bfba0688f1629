"""The cluster's own Events about pods, as it has them: one request, when somebody asks."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from common import faultpoints
from common.errors import Unreachable
from jobs.clusters import ClusterEvent, ClusterEvents
from jobs.core.attempt_ref import AttemptRef

from ..api.client import Api
from ..api.objects import get, items, text, whole, words
from ..build import labels
from .findings import ACCOUNT

MOST = 200  # that are returned, the newest
MOST_READ = 5000  # of a namespace, of an hour as a rule
SECONDS = 8.0


async def read(
    api: Api, namespace: str, *, names: Collection[str] = (), ref: AttemptRef | None = None
) -> ClusterEvents:
    """Return the newest Events of these pods, and of all that are named as an attempt's are. Raises Unreachable.

    A selection by fields has no "one of": several pods are chosen among those of the namespace.
    """
    wanted = "involvedObject.kind=Pod"
    if len(names) == 1:
        wanted += f",involvedObject.name={next(iter(names))}"
    params = {"fieldSelector": wanted, "limit": str(MOST_READ)}
    with faultpoints.around("kube.events"):
        answer = await api.call("GET", f"api/v1/namespaces/{namespace}/events", params=params, seconds=SECONDS)
    if answer.status == 403:
        said = f"Muster's account may not list Events in namespace {namespace}; an administrator of the cluster can: {ACCOUNT}"
        return ClusterEvents((), said)
    if not answer.is_good:
        raise Unreachable(f"the Events of namespace {namespace}: {answer.words}")
    found = [
        _event(one) for one in items(answer.body.get("items")) if _is_of(get(one, "involvedObject", "name"), names, ref)
    ]
    found.sort(key=lambda one: one.at or datetime.min.replace(tzinfo=UTC), reverse=True)
    said = f"only the newest {MOST} are shown" if len(found) > MOST else ""
    if get(dict(answer.body), "metadata", "continue"):
        said = f"namespace {namespace} has more than {MOST_READ} Events of pods, and not all of them were read"
    return ClusterEvents(tuple(found[:MOST]), said)


def _is_of(name: Any, names: Collection[str], ref: AttemptRef | None) -> bool:
    return name in names or (ref is not None and labels.attempt_of_name(name) == (ref.run, ref.number))


def _event(thing: Any) -> ClusterEvent:
    """Read an Event of either kind: what libraries write today has its times and its count in other fields."""
    about, meta = get(thing, "involvedObject"), get(thing, "metadata")
    times = (
        get(thing, "series", "lastObservedTime"), get(thing, "lastTimestamp"), get(thing, "eventTime"),
        get(thing, "firstTimestamp"), get(meta, "creationTimestamp"),
    )  # fmt: skip
    return ClusterEvent(
        at=next((at for one in times if (at := _time(one)) is not None), None),
        type=words(get(thing, "type"), most=40),
        reason=words(get(thing, "reason"), most=128),
        object=f"{words(get(about, 'kind'), most=60)}/{words(get(about, 'name'), most=253)}",
        message=words(get(thing, "message"), most=1000),
        count=max(1, whole(get(thing, "count")) or 0, whole(get(thing, "series", "count")) or 0),
    )


def _time(said: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text(said)[:40])
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
