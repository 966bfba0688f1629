"""The keeper of a claim on the API server: made, read when it has ended, and deleted. Its name is the lock of the claim."""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from common import faultpoints
from common.errors import InvalidInput, Refused, Unreachable
from jobs.core import volume_use
from jobs.core.batch import Item
from jobs.core.keeping import Errand, Kept

from ..api.answers import need, need_created
from ..api.client import Api
from ..api.objects import condition, get, items, text, words
from ..build import keeper, labels
from ..build.site import Site

LATE_SECONDS = 600.0  # after its creation; a node ends it long before, so it has none, or the node is silent
MOST_BYTES = 256 << 10  # of its log
ENDED = ("Succeeded", "Failed")


async def keep(
    errand: Errand, *, api: Api, site: Site, agent: str, need_agent: Callable[[], Awaitable[None]], now: float
) -> Kept | None:
    """Go one step on with an errand; return its answer, after which the pod is deleted. `now`: seconds since the epoch.

    Raises Refused if there can be no keeper, and Unreachable.
    """
    pods = f"api/v1/namespaces/{site.namespace}/pods"
    where = f"{pods}/{labels.keeper(errand.claim)}"
    with faultpoints.around("kube.keeper"):
        there = await api.call("GET", where)
    if there.status == 404:
        await need_agent()
        await _make(api, pods, keeper.pod(errand, site=site, agent=agent))
        return None
    pod = need(there, "the keeper")
    told = get(pod, "metadata", "labels", labels.KEEPER)
    if not told:
        raise Refused(f"pod {labels.keeper(errand.claim)} exists and is not Muster's; delete it")
    if get(pod, "metadata", "deletionTimestamp"):
        return None
    is_late = now > _since(pod) + LATE_SECONDS
    is_ours = told == errand.digest
    if not is_late and not (is_ours and get(pod, "status", "phase") in ENDED):
        return None  # it is at work, or another installation's
    kept = await _answer(api, f"{where}/log", pod, errand, is_late=is_late) if is_ours else None
    await _remove(api, where, str(get(pod, "metadata", "uid")))
    return kept


async def _make(api: Api, pods: str, pod: Any) -> None:
    with faultpoints.around("kube.keeper"):
        answer = await api.call("POST", pods, body=pod)
    if not answer.is_there_already:
        need_created(answer, "the keeper")


async def _answer(api: Api, log: str, pod: Any, errand: Errand, *, is_late: bool) -> Kept:
    if get(pod, "status", "phase") not in ENDED:
        return Kept(problem=f"its pod has not ended in {LATE_SECONDS / 60:.0f} min: {why(pod)}")
    with faultpoints.around("kube.keeper"):
        said = await api.call("GET", log, params={"container": keeper.CONTAINER, "limitBytes": str(MOST_BYTES)})
    if said.is_good and (found := read(said.content, errand)) is not None:
        return found
    if get(pod, "status", "phase") == "Failed" or said.is_good:
        return Kept(problem=f"its pod said nothing: {why(pod)}")
    if is_late:
        return Kept(problem=f"its log cannot be read: {said.words}")
    raise Unreachable(f"the log of the keeper cannot be read yet: {said.words}")


async def _remove(api: Api, where: str, uid: str) -> None:
    with faultpoints.around("kube.keeper"):
        answer = await api.call("DELETE", where, body={"preconditions": {"uid": uid}})
    if answer.status not in (200, 202, 404, 409):  # 409: another pod has the name by now
        raise Unreachable(f"the keeper is not deleted yet: {answer.words}")


def read(log: bytes, errand: Errand) -> Kept | None:
    """Return what a keeper printed, as far as it was asked for; None if it printed no answer."""
    for line in reversed(log.splitlines()):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.get("keeper") == 1:
            return _kept(said, errand)
    return None


def _kept(said: dict[str, Any], errand: Errand) -> Kept:
    asked = frozenset(errand.folders)
    left = said.get("left")
    reasons = {name: words(why) for name, why in left.items() if name in asked} if isinstance(left, dict) else {}
    gone, late = (asked & {text(one) for one in items(said.get(name))} for name in ("gone", "late"))
    try:
        use = volume_use.read(Item("volumes", {"volumes": {"kept": said.get("use")}})).get("kept")
    except InvalidInput:
        use = None
    return Kept(gone - reasons.keys(), reasons, late - gone - reasons.keys(), use)


def why(pod: Any) -> str:
    """Return what the cluster says of a pod that did not do its work."""
    for one in items(get(pod, "status", "containerStatuses")):
        for state in ("waiting", "terminated"):
            if about := get(one, "state", state):
                return words(get(about, "message")) or words(get(about, "reason"))
    if found := words(get(pod, "status", "message")):
        return found
    return words(get(condition(get(pod, "status"), "PodScheduled"), "message")) or "it gives no reason"


def _since(pod: Any) -> float:
    try:
        return datetime.fromisoformat(str(get(pod, "metadata", "creationTimestamp"))).timestamp()
    except ValueError:
        return 0.0
