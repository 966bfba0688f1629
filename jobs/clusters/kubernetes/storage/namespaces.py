"""Make a team's namespace, where the account may (deploy/team-namespaces.yaml). One that is there is never taken over.

Nothing in a namespace proves who made it: anyone who may create namespaces could put one there beforehand, with a
binding for themselves and an open network, and wait for the team's jobs and secrets.
"""

import asyncio
import time

from common import faultpoints
from common.errors import Refused, Unreachable

from ..api import reviews
from ..api.answers import ApiAnswer, need, need_created
from ..api.client import Api
from ..api.objects import get
from ..build import namespaces
from ..build.namespaces import Part
from ..build.site import Site

GRANT = "an administrator of the cluster types: kubectl apply -f deploy/team-namespaces.yaml"
THERE = (
    "give it to the team without making it, or, if an earlier attempt to make it was cut off, have an administrator of the "
    "cluster delete it first"
)
RIGHT_SECONDS, ASK_SECONDS = 10.0, 0.2  # the API server takes a binding in after a moment
WHO = "apis/authentication.k8s.io/v1/selfsubjectreviews"


async def make(api: Api, site: Site, name: str) -> None:
    """Create a namespace with Muster's rights in it and a closed network.

    Raises Refused where the account may not, or where the namespace is there already, and Unreachable.
    """
    user = await _user(api)
    answer = await _create(api, namespaces.namespace(name))
    if answer.lacks_right:
        raise Refused(f"Muster's account may not make namespaces: {answer.words}; {GRANT}")
    if answer.is_there_already:
        raise Refused(f"namespace {name} is there already; {THERE}")
    need_created(answer, f"namespace {name}")
    await _need(api, namespaces.account(name, site, user=user))
    await _await_right(api, name)
    for part in namespaces.closed(name, site):
        await _need(api, part)


async def _user(api: Api) -> str:
    with faultpoints.around("kube.namespace"):
        answer = await api.call("POST", WHO, body={})
    found = get(dict(need(answer, "who Muster is")), "status", "userInfo", "username")
    if not isinstance(found, str) or not found:
        raise Refused("the cluster does not say as whom it knows Muster (selfsubjectreviews, Kubernetes 1.28)")
    return found


async def _need(api: Api, part: Part) -> None:
    answer = await _create(api, part)
    if answer.status == 403:
        raise Refused(f"Muster's account may not make what the namespace needs: {answer.words}; {GRANT}")
    if not answer.is_there_already:
        need_created(answer, f"{part.path.rpartition('/')[2]} {part.content['metadata']['name']}")


async def _create(api: Api, part: Part) -> ApiAnswer:
    with faultpoints.around("kube.namespace"):
        return await api.call("POST", part.path, body=part.content)


async def _await_right(api: Api, name: str) -> None:
    end = time.monotonic() + RIGHT_SECONDS
    while not await reviews.may(api, "create", "networkpolicies", group="networking.k8s.io", namespace=name):
        if time.monotonic() > end:
            raise Unreachable(f"the cluster has not taken in Muster's rights in namespace {name} yet; try it again")
        await asyncio.sleep(ASK_SECONDS)
