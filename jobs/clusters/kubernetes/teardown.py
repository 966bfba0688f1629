"""End an attempt: pods first, because names must resolve while ranks save; then the owner; then its name is closed.

A pod created after its owner is gone is an orphan and is collected by the cluster itself. A creation that begins later
finds the tombstone.
"""

from collections.abc import Iterable
from typing import Any

from common import faultpoints

from . import meshes
from .api.answers import ApiAnswer, need
from .api.client import JSON, METADATA_LIST, Api
from .api.parallel import Limit, each
from .build import labels, manifests
from .facts.pods import AttemptObjects, Owner, Pod, read_owner

END_SECONDS = 12.0
# Above this many pods, the cluster's endpoint controllers process all of them for each that ends: half the cost of an
# end.
MANY_NAMES = 100
# For pods that are ended at once, as `kubectl delete --now` does. With 0 the API server removes a pod while its
# processes may still run, and its quota would go to another job that then finds the GPU taken.
NOW_SECONDS = 1
MERGE = "application/merge-patch+json"


async def end(
    attempt: AttemptObjects, *, api: Api, path: str, grace_seconds: int, is_asked: bool = False, is_now: bool = False
) -> Owner | None:
    """Take the next step to end an attempt. Return the tombstone if this step made it.

    An attempt without living pods must come from a direct read. `path` is that of the namespace. `is_asked`: all its
    pods were deleted a moment ago, and the cached view may not show it yet. `is_now` also shortens the grace period of
    pods that are already ending.
    """
    await _force(attempt, api=api, path=path)
    seconds = NOW_SECONDS if is_now else grace_seconds + manifests.DRAIN_SECONDS
    has_right_grace = is_asked or not is_now  # whether the pods that are ending have the right grace period
    leftover = [pod for pod in attempt.ours if pod.node not in attempt.lost and not (pod.is_ending and has_right_grace)]
    if any(pod.is_of_mesh for pod in leftover):
        await _delete_meshes(attempt, api=api, path=path)
    if not attempt.has_live_owner:
        await _delete_each(leftover, api=api, path=path, seconds=seconds)
        return await _close(attempt, api=api, path=path)
    if leftover and attempt.foreign:
        await _delete_each(leftover, api=api, path=path, seconds=seconds)
    elif leftover and not is_asked:
        await _delete_all(attempt, api=api, path=path, seconds=seconds)
    elif not attempt.ours:
        await _delete_owner(attempt, api=api, path=path)
        return await _close(attempt, api=api, path=path)
    return None


async def end_replicas(
    attempt: AttemptObjects, places: Iterable[tuple[str, int]], *, api: Api, path: str, grace_seconds: int
) -> None:
    """End the pods at these places: on lost nodes at once, else with the grace period.

    The attempt and its owner stay.
    """
    theirs = set(places)
    left = [pod for pod in attempt.ours if pod.is_alive and (pod.place.role, pod.place.index) in theirs]
    await _delete_each([pod for pod in left if pod.node in attempt.lost], api=api, path=path, seconds=0)
    rest = [pod for pod in left if pod.node not in attempt.lost and not pod.is_ending]
    await _delete_each(rest, api=api, path=path, seconds=grace_seconds + manifests.DRAIN_SECONDS)


async def _force(attempt: AttemptObjects, *, api: Api, path: str) -> None:
    """Force-delete pods on lost nodes: no kubelet can end them and report it. The node ends them when it is back."""
    stuck = [pod for pod in attempt.ours if pod.node in attempt.lost]
    if stuck:
        await _delete_each(stuck, api=api, path=path, seconds=0)


async def _delete_all(attempt: AttemptObjects, *, api: Api, path: str, seconds: int) -> None:
    assert attempt.owner is not None
    if len(attempt.ours) > MANY_NAMES:
        await _keep_names(attempt.owner, api=api, path=path)
    mine = {**labels.of_attempt(attempt.ref.run, attempt.ref.number), labels.OWNER: attempt.owner.uid}
    params = {"labelSelector": labels.selector(mine)}
    body = _options(seconds)
    brief = f"{METADATA_LIST},{JSON}"  # the answer contains everything it deletes
    with faultpoints.around("kube.delete"):
        answer = await api.call(
            "DELETE", f"{path}/pods", params=params, body=body, seconds=END_SECONDS, accept=brief
        )  # fmt: skip
    need(answer, "deleting the pods")


async def _delete_meshes(attempt: AttemptObjects, *, api: Api, path: str) -> None:
    """Delete the attempt's MonarchMeshes, or they replace each pod that is deleted. 404: the operator was uninstalled.

    In the foreground: a mesh keeps its name until its pods are gone. Otherwise the next attempt, whose mesh has the same
    name, could take a pod for its own that the earlier mesh's set made at the last moment, and that goes with it.
    """
    params = {"labelSelector": labels.selector(labels.of_attempt(attempt.ref.run, attempt.ref.number))}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    with faultpoints.around("mesh.delete"):
        answer = await api.call(
            "DELETE", meshes.path_of(path), params=params, body=body, accept=f"{METADATA_LIST},{JSON}"
        )
    if answer.status != 404:
        need(answer, "deleting the meshes")


async def _keep_names(owner: Owner, *, api: Api, path: str) -> None:
    """Remove the Service's selector: no controller follows the pods then, and DNS names stay until the Service goes.

    The answer is ignored, as ending does not depend on it: an account may lack this right.
    """
    body = {"metadata": {"uid": owner.uid}, "spec": {"selector": None}}
    with faultpoints.around("kube.names"):
        await api.call("PATCH", f"{path}/services/{owner.name}", body=body, kind=MERGE)


async def _delete_each(pods: list[Pod], *, api: Api, path: str, seconds: int) -> None:
    async def delete(pod: Pod) -> ApiAnswer:
        body = _options(seconds, uid=pod.uid)
        with faultpoints.around("kube.remove"):
            return await api.call("DELETE", f"{path}/pods/{pod.name}", body=body)

    answers = await each(pods, delete, limit=Limit(), seconds=END_SECONDS)
    for pod, answer in answers:
        _need_gone(answer, f"deleting pod {pod.name}")


async def _delete_owner(attempt: AttemptObjects, *, api: Api, path: str) -> None:
    assert attempt.owner is not None
    body = {**_options(0, uid=attempt.owner.uid), "propagationPolicy": "Background"}
    with faultpoints.around("kube.disown"):
        answer = await api.call("DELETE", f"{path}/services/{attempt.owner.name}", body=body)
    _need_gone(answer, f"deleting Service {attempt.owner.name}")


async def _close(attempt: AttemptObjects, *, api: Api, path: str) -> Owner | None:
    """Create the tombstone. If the name is still taken, the attempt is not closed yet; the next read shows by what."""
    if attempt.is_sealed:
        return None
    tombstone = manifests.tombstone(attempt.ref.run, attempt.ref.number)
    with faultpoints.around("kube.close"):
        answer = await api.call("POST", f"{path}/services", body=tombstone)
    if answer.is_there_already:
        return None
    return read_owner(need(answer, f"closing attempt {attempt.ref.number}"))


def _need_gone(answer: ApiAnswer, what: str) -> None:
    """Accept 404, gone already, and 409, the name belongs to another object by now, which is not ours."""
    if answer.status not in (404, 409):
        need(answer, what)


def _options(seconds: int, *, uid: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": seconds}
    return {**options, **({"preconditions": {"uid": uid}} if uid else {})}
