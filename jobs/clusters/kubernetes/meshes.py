"""MonarchMesh: pods that Monarch's operator makes from one template, in place of a pod that Muster makes for each replica.

Two releases of the operator differ in the shape of `podTemplate`; which one is installed is read from the API server's
own description. Sources: meta-pytorch/monarch-kubernetes, operator/api/v1alpha1 and operator/internal/controller.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common import faultpoints
from common.errors import Refused, Unreachable
from jobs.core.plan import Plan, Role

from .api.answers import ApiAnswer, need, need_created
from .api.client import METADATA, METADATA_LIST, Api
from .api.objects import get, items
from .build import labels, manifests
from .build.mounts import Manifest
from .build.site import Site

KIND = "MonarchMesh"
DESCRIPTION = f"openapi/v3/apis/{manifests.MESH_VERSION}"  # readable with any credentials
SHAPE_SECONDS = 300.0  # how long the shape is assumed to stay
PODS_SECONDS, LOOK_SECONDS = 5.0, 0.2  # for the operator to make the pods, after which the next visit goes on
MERGE = "application/merge-patch+json"
OLD_AND_OPEN = (
    "the MonarchMesh of this cluster (operator 0.1) cannot label pods, so that NETWORK_POLICY would leave them open to all; "
    "install operator 0.2 or later, or set mesh_launcher=pods"
)
MISSING = "this cluster has no MonarchMesh; install Monarch's operator, or set mesh_launcher=pods"


def path_of(path: str) -> str:
    """Return the path of the meshes in the namespace of `path`, which is that of its core objects."""
    return f"{path.replace('api/v1', f'apis/{manifests.MESH_VERSION}', 1)}/monarchmeshes"


def takes_template(description: Mapping[str, Any]) -> bool | None:
    """Return whether `spec.podTemplate` is a PodTemplateSpec, by an OpenAPI v3 description; None if it has no mesh.

    A schema that describes neither shape is taken for the newer one.
    """
    schemas = get(dict(description), "components", "schemas") or {}
    for schema in schemas.values():
        kinds = items(get(schema, "x-kubernetes-group-version-kind"))
        if any(get(one, "kind") == KIND for one in kinds):
            template = get(schema, "properties", "spec", "properties", "podTemplate", "properties") or {}
            return "containers" not in template
    return None


@dataclass
class Meshes:
    """The meshes of a namespace. `post` creates an object, as the launcher does it: its kind, and the object."""

    api: Api
    site: Site
    post: Callable[..., Any]
    _takes_template: bool = True
    _read_at: float = 0.0

    async def need_shape(self, *, is_isolated: bool = False) -> bool:
        """Return whether a mesh takes a template. Raises Refused if there are no meshes, or if they would be unprotected."""
        if not self._read_at or time.monotonic() > self._read_at + SHAPE_SECONDS:
            with faultpoints.around("mesh.shape"):
                answer = await self.api.call("GET", DESCRIPTION)
            if answer.status == 404:
                raise Refused(MISSING)
            found = takes_template(need(answer, "the description of MonarchMesh"))
            if found is None:
                raise Refused(MISSING)
            self._takes_template, self._read_at = found, time.monotonic()
        if (self.site.network_policy or is_isolated) and not self._takes_template:
            raise Refused(OLD_AND_OPEN)
        return self._takes_template

    async def need_mesh(self, plan: Plan, role: Role, *, owner: str, agent: str) -> None:
        """Create a role's mesh if it is missing. Raises Refused if somebody else's has its name, Unreachable while an earlier one goes."""
        shape = await self.need_shape(is_isolated=plan.is_isolated)
        body = manifests.mesh(plan, role, site=self.site, owner=owner, agent=agent, takes_template=shape)
        with faultpoints.around("mesh.create"):
            answer: ApiAnswer = await self.post("monarchmeshes", body)
        if not answer.is_there_already:
            need_created(answer, f"MonarchMesh {role.name}")
            return
        found = await self._mine(role.name)
        if found == owner:
            return
        if found:
            raise Unreachable(f"MonarchMesh {role.name} of an earlier job is still being removed")
        raise Refused(
            f"MonarchMesh {role.name} exists and is not Muster's; delete it, or give the job another mesh_name"
        )

    async def need_pods(self, plan: Plan, roles: list[Role], *, owner: str) -> None:
        """Wait a moment for the pods of these roles, whose absence would count as lost. Raises Unreachable without them."""
        end = time.monotonic() + PODS_SECONDS
        while missing := [role for role in roles if not await self._are_there(plan, role, owner=owner)]:
            if time.monotonic() > end:
                names = " and ".join(role.name for role in missing)
                raise Unreachable(f"MonarchMesh {names} does not have all its pods yet: is Monarch's operator running?")
            await asyncio.sleep(LOOK_SECONDS)

    async def _mine(self, name: str) -> str:
        """Return the UID of the Service that owns a mesh; empty if none of Muster's does."""
        with faultpoints.around("mesh.find"):
            path = f"{path_of(f'api/v1/namespaces/{self.site.namespace}')}/{name}"
            answer = await self.api.call("GET", path, accept=METADATA)
        meta = need(answer, f"MonarchMesh {name}").get("metadata")
        run, attempt = labels.attempt_of(get(meta, "labels"))
        owners = [
            one for one in items(get(meta, "ownerReferences")) if get(one, "name") == labels.service(run, attempt)
        ]
        return str(get(owners[0], "uid") or "") if run and owners else ""

    async def _are_there(self, plan: Plan, role: Role, *, owner: str) -> bool:
        mine = labels.of_role(plan.run, plan.attempt, role.name, owner=owner)
        by_label = mine if self._takes_template else {labels.MESH: role.name}
        params = {"labelSelector": labels.selector(by_label)}
        path = f"api/v1/namespaces/{self.site.namespace}/pods"
        with faultpoints.around("mesh.pods"):
            answer = await self.api.call("GET", path, params=params, accept=METADATA_LIST)
        found = [one["metadata"] for one in need(answer, f"the pods of {role.name}").get("items") or []]
        if not self._takes_template:
            found = [await self._labelled(meta, mine, path=path) for meta in found]
        there = {labels.replica_of(meta.get("labels")) for meta in found if not meta.get("deletionTimestamp")}
        wanted = {labels.ReplicaLabels(plan.run, plan.attempt, role.name, index) for index in range(role.replicas)}
        return wanted <= there

    async def _labelled(self, meta: Manifest, mine: Mapping[str, str], *, path: str) -> Manifest:
        """Give a pod the labels that its template could not carry. One that is ending is an earlier attempt's."""
        if meta.get("deletionTimestamp") or labels.attempt_of(meta.get("labels"))[0]:
            return meta
        body = {"metadata": {"uid": meta["uid"], "labels": dict(mine)}}
        with faultpoints.around("mesh.label"):
            answer = await self.api.call("PATCH", f"{path}/{meta['name']}", body=body, kind=MERGE, accept=METADATA)
        labelled: Manifest = dict(need(answer, f"labelling pod {meta['name']}")["metadata"])
        return labelled
