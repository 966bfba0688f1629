"""Claims of teams' volumes: made with the first job that mounts one, looked at, grown, and deleted when nobody uses them."""

from common import faultpoints
from common.errors import Refused, Unreachable
from jobs.core.plan import Claim, ClaimSeen

from ..api.answers import need, need_created
from ..api.client import Api
from ..api.objects import get, words
from ..build import labels, manifests

MERGE = "application/merge-patch+json"
NO_RIGHT = "Muster's account may not {verb} claims; apply deploy/account.yaml of this release again"
IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_STATES = {"Pending": "pending", "Bound": "bound", "Lost": "lost"}


async def ensure(api: Api, path: str, claim: Claim) -> None:
    """Create a claim of Muster's own unless it exists. Raises Refused for one of this name that is not the volume's."""
    with faultpoints.around("kube.claim"):
        answer = await api.call("POST", f"{path}/persistentvolumeclaims", body=manifests.claim(claim))
    if answer.lacks_right:
        raise Refused(f"{NO_RIGHT.format(verb='create')}: {answer.words}")
    if not answer.is_there_already:
        need_created(answer, f"the claim of volume {claim.volume}")
        return
    with faultpoints.around("kube.claim"):
        there = await api.call("GET", f"{path}/persistentvolumeclaims/{claim.name}")
    if not _is_own(need(there, f"claim {claim.name}"), claim):
        raise Refused(f"claim {claim.name} exists and is not that of volume {claim.volume}; delete it")


async def attempt(api: Api, path: str, claim: Claim) -> str:
    """Return why the server would not create the claim now: it is asked to, and makes nothing (`dryRun`)."""
    with faultpoints.around("kube.claim"):
        answer = await api.call(
            "POST", f"{path}/persistentvolumeclaims", body=manifests.claim(claim), params={"dryRun": "All"}
        )
    if answer.is_good or answer.is_there_already or answer.status not in (403, 422):
        return ""
    return NO_RIGHT.format(verb="create") if answer.lacks_right else answer.words


async def see(api: Api, path: str, claim: Claim) -> ClaimSeen:
    """Return the claim's state, and while it waits the provisioner's own words."""
    with faultpoints.around("kube.claim"):
        answer = await api.call("GET", f"{path}/persistentvolumeclaims/{claim.name}")
    if answer.status == 404:
        return ClaimSeen()
    if answer.status == 403:
        raise Refused(f"{NO_RIGHT.format(verb='read')}: {answer.words}")
    body = need(answer, f"claim {claim.name}")
    state = _STATES.get(str(get(body, "status", "phase")), "pending")
    capacity = str(get(body, "status", "capacity", "storage") or "")
    return ClaimSeen(state, capacity, await _why(api, path, claim) if state == "pending" else "")


async def grow(api: Api, path: str, claim: Claim) -> None:
    """Ask for the claim's size. Raises Refused where its class does not let it grow."""
    body = {"spec": {"resources": {"requests": {"storage": claim.size}}}}
    with faultpoints.around("kube.claim"):
        answer = await api.call("PATCH", f"{path}/persistentvolumeclaims/{claim.name}", body=body, kind=MERGE)
    if answer.status in (403, 422):
        raise Refused(f"volume {claim.volume} cannot grow: {answer.words}")
    need(answer, f"the size of claim {claim.name}")


async def remove(api: Api, path: str, claim: Claim) -> bool:
    """Ask for the deletion of a claim of Muster's own, with its data. Return whether it is gone."""
    with faultpoints.around("kube.claim"):
        there = await api.call("GET", f"{path}/persistentvolumeclaims/{claim.name}")
    if there.status == 404:
        return True
    body = need(there, f"claim {claim.name}")
    if not _is_own(body, claim):
        return True  # it belongs to somebody else, and stays
    if get(body, "metadata", "deletionTimestamp"):
        return False
    condition = {"preconditions": {"uid": get(body, "metadata", "uid")}}
    with faultpoints.around("kube.claim"):
        answer = await api.call("DELETE", f"{path}/persistentvolumeclaims/{claim.name}", body=condition)
    if answer.status not in (200, 202, 404, 409):
        raise Unreachable(f"claim {claim.name} is not deleted yet: {answer.words}")
    return answer.status == 404


async def classes(api: Api) -> dict[str, str] | None:
    """Return the cluster's storage classes with their provisioners, the default's also under ""; None if they cannot be read."""
    with faultpoints.around("kube.claim"):
        answer = await api.call("GET", "apis/storage.k8s.io/v1/storageclasses")
    if not answer.is_good:
        return None
    found = answer.body.get("items") or []
    default = [one for one in found if (get(one, "metadata", "annotations") or {}).get(IS_DEFAULT) == "true"]
    # Of several defaults the newest one counts, as in Kubernetes.
    default.sort(key=lambda one: str(get(one, "metadata", "creationTimestamp")))
    names = {str(get(one, "metadata", "name")): str(get(one, "provisioner") or "") for one in found}
    if default:
        names[""] = str(get(default[-1], "provisioner") or "")
    return names


def _is_own(body: object, claim: Claim) -> bool:
    found = get(body, "metadata", "labels") or {}
    return bool(found.get(labels.VOLUME) == claim.volume and found.get(labels.TEAM) == claim.team)


async def _why(api: Api, path: str, claim: Claim) -> str:
    """Return the newest Event about a claim that waits; empty where Events cannot be read."""
    wanted = {"fieldSelector": f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim.name}"}
    with faultpoints.around("kube.claim"):
        answer = await api.call("GET", f"{path}/events", params=wanted)
    found = [one for one in answer.body.get("items") or [] if isinstance(one, dict)] if answer.is_good else []
    newest = max(found, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""), default=None)
    return words(newest.get("message"), most=500) if newest else ""
