"""Create an attempt: its owner, its replicas' configuration, and the pods, directly and in parallel.

One process may begin it and another one finish it: every name is known before anything is created.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common import faultpoints
from common.errors import Refused, Sealed, Unreachable
from jobs.clusters import Checked
from jobs.core.plan import Plan, Role

from .api.answers import NEVER, ApiAnswer, need, need_created
from .api.client import METADATA, METADATA_LIST, Api
from .api.objects import get
from .api.parallel import Limit, each
from .build import labels, manifests
from .build.mounts import Manifest
from .build.site import Site
from .facts.pods import owner_uid, read_owner
from .meshes import Meshes
from .storage import claims

REMOVED_SECONDS, LOOK_SECONDS = 3.0, 0.2  # for the cluster to remove what an attempt before this one owned
LAUNCH_SECONDS = 10.0  # what is left then is up to the next visit
NO_POLICY = "Other pods of the cluster can reach this attempt's pods: Muster's account may not create NetworkPolicies (deploy/account.yaml)"
NOBODY = "00000000-0000-0000-0000-000000000000"  # the owner of a pod that is not made
# Parts of answers that say nothing about the pod itself.
PASSING = ("exceeded quota", "does not support dry run", "failed calling webhook", "failed quota")
GROUPS = {"networkpolicies": "apis/networking.k8s.io/v1", "monarchmeshes": f"apis/{manifests.MESH_VERSION}"}
AGENT_SECONDS = 300.0  # how long the agent's ConfigMap is assumed to exist


@dataclass
class AttemptLauncher:
    """Creates attempts. `created` is called with each pod as the server returned it."""

    api: Api
    site: Site
    agent: Manifest
    created: Callable[[Any], object]
    limit: Limit = field(default_factory=Limit)
    _agent_seen: float = 0.0

    def __post_init__(self) -> None:
        self.meshes = Meshes(self.api, self.site, self._create)

    async def launch(self, plan: Plan) -> str:
        """Create what is missing. Return a message for users, if the account may not create the NetworkPolicy.

        Raises Sealed, Refused or Unreachable; what was created by then stays, for the next call or the delete.
        """
        meshed = [role for role in plan.roles if role.operator]
        if meshed:
            await self.meshes.need_shape()
        for role in plan.roles:  # raises Refused for what no pod of the role can have, before anything is created
            self._pods_of(plan, role, owner="")(0)
        places = [(role.name, index) for role, index in plan.replicas() if not role.operator]
        owner, is_new = await self._owner(plan)
        for claim in (*plan.claims.values(), *plan.job_claims.values()):
            if claim.size:
                await claims.ensure(self.api, f"api/v1/namespaces/{self.site.namespace}", claim)
        if plan.is_headless and plan.wanted is None:
            await self._need_headless(plan, owner)
        await self.need_agent()
        message = await self._need_config(plan, owner)
        for role in meshed:
            await self.meshes.need_mesh(plan, role, owner=owner, agent=self.agent["metadata"]["name"])
        missing = places if is_new else await self._missing(plan, owner, places)
        pods = {role.name: self._pods_of(plan, role, owner=owner) for role in plan.roles}

        async def create(place: tuple[str, int]) -> ApiAnswer:
            body = pods[place[0]](place[1])
            with faultpoints.around("kube.pod"):
                return await self._create("pods", body)

        answers = await each(missing, create, limit=self.limit, seconds=LAUNCH_SECONDS, stop_at=NEVER)
        for place, answer in answers:
            await self._settle(plan, place, answer, owner=owner)
        if meshed:
            await self.meshes.need_pods(plan, meshed, owner=owner)
        return message

    async def check(self, plan: Plan) -> Checked:
        """Ask the server whether it would take the first replica's pod, without making it: `dryRun=All`.

        What it refuses for the moment (a quota), for want of a right, or because a webhook takes no such questions, is
        not checked.
        """
        try:
            body = self._pods_of(plan, plan.roles[0], owner=NOBODY)(0)
        except Refused as error:
            return Checked("invalid", str(error))
        with faultpoints.around("kube.read"):
            answer = await self.api.call(
                "POST", self._path("pods"), body=body, params={"dryRun": "All"}, accept=METADATA
            )
        if answer.is_good:
            return Checked("valid")
        is_known = answer.status in NEVER and not answer.lacks_right and answer.status not in (404, 405)
        is_passing = any(part in answer.words for part in PASSING)
        return Checked("invalid" if is_known and not is_passing else "not_checked", answer.words)

    def _pods_of(self, plan: Plan, role: Role, *, owner: str) -> Callable[[int], Manifest]:
        return manifests.pods_of(plan, role, site=self.site, owner=owner, agent=self.agent["metadata"]["name"])

    async def _owner(self, plan: Plan) -> tuple[str, bool]:
        """Return (UID, whether it was created just now).

        The name is the lock: it belongs to one owner, or to a tombstone.
        """
        with faultpoints.around("kube.owner"):
            answer = await self._create("services", manifests.service(plan))
        if not answer.is_there_already:
            body = need_created(answer, f"the Service of attempt {plan.attempt}")
            return str(body["metadata"]["uid"]), True
        name = labels.service(plan.run, plan.attempt)
        body = need(await self._read("services", name), f"Service {name}")
        found = read_owner(body)
        if found is None:
            raise Refused(
                f"Service {name} exists and is not Muster's; delete it, or give Muster a namespace of its own"
            )
        if found.is_sealed or found.is_ending:
            raise Sealed(f"attempt {plan.attempt} of {plan.run} is closed")
        return found.uid, False

    async def _need_headless(self, plan: Plan, owner: str) -> None:
        """Create the Service of the job's own name. Raises Unreachable while another object has it, which is left alone.

        That of an attempt before this one goes in a moment, for which it waits here.
        """
        name, end = labels.headless(plan.job), time.monotonic() + REMOVED_SECONDS
        while not await self._has_created_headless(plan, owner):
            meta = need(await self._read("services", name), f"Service {name}").get("metadata")
            run, attempt = labels.attempt_of(get(meta, "labels"))
            theirs = owner_uid(meta, labels.ReplicaLabels(run, attempt, "", 0)) if run else ""
            if theirs == owner:
                return
            if not theirs or run != plan.run:
                whose = "belongs to another job" if theirs else "is not Muster's"
                raise Unreachable(
                    f"Service {name} exists and {whose}: this job waits until it is gone; delete it, give the job "
                    "another name, or set headless_service to 0"
                )
            if time.monotonic() > end:
                raise Unreachable(f"Service {name} of attempt {attempt} is still being removed")
            await asyncio.sleep(LOOK_SECONDS)

    async def _has_created_headless(self, plan: Plan, owner: str) -> bool:
        body = manifests.headless_service(plan, owner=owner)
        with faultpoints.around("kube.owner"):
            answer = await self._create("services", body)
        if not answer.is_there_already:
            need_created(answer, f"Service {body['metadata']['name']}")
        return not answer.is_there_already

    async def need_agent(self) -> None:
        """Create one immutable ConfigMap for all jobs, and for keepers.

        An existing one's content is compared: its author's code would run in every pod. Raises Refused if it differs.
        """
        if time.monotonic() < self._agent_seen + AGENT_SECONDS and self._agent_seen:
            return
        name = self.agent["metadata"]["name"]
        with faultpoints.around("kube.agent"):
            answer = await self._create("configmaps", self.agent)
        if answer.is_there_already:
            body = need(await self._read("configmaps", name), f"ConfigMap {name}")
            if body.get("binaryData") != self.agent["binaryData"]:
                raise Refused(f"ConfigMap {name} exists with different content; delete it")
        else:
            need_created(answer, "the agent's ConfigMap")
        self._agent_seen = time.monotonic()

    async def _need_config(self, plan: Plan, owner: str) -> str:
        """Create what must exist before the first pod. Never read back: Muster needs no right to read secrets.

        A replacement replica gets a Secret of its own. Returns a message about what was left out.
        """
        bodies = [manifests.secret(plan, self.site, owner=owner)] if plan.wanted is None else []
        if bodies and (self.site.network_policy or plan.is_isolated):  # isolated from the first moment
            bodies.insert(0, manifests.network_policy(plan, self.site, owner=owner))
        later = [(role.name, index) for role, index in plan.replicas() if plan.incarnation(role.name, index)]
        bodies += [manifests.secret(plan, self.site, owner=owner, replica=place) for place in later]
        if plan.docker_config and plan.wanted is None:
            bodies.append(manifests.pull_secret(plan, owner=owner))
        message = ""
        for body in bodies:
            is_policy = body["kind"] == "NetworkPolicy"
            with faultpoints.around("kube.secret"):
                answer = await self._create("networkpolicies" if is_policy else "secrets", body)
            # Only a missing right is tolerated; a quota or webhook that refuses must not lead to running unprotected.
            if is_policy and answer.lacks_right:
                message = f"{NO_POLICY}: {answer.words}"
            elif not answer.is_there_already:
                need_created(answer, "the NetworkPolicy of the attempt" if is_policy else "the Secret of the job")
        return message

    async def _missing(self, plan: Plan, owner: str, places: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the places without a pod, after a crash or another process. One list instead of a 409 for each."""
        wanted = labels.selector({**labels.of_attempt(plan.run, plan.attempt), labels.OWNER: owner})
        params = {"labelSelector": wanted}
        with faultpoints.around("kube.missing"):
            answer = await self.api.call("GET", self._path("pods"), params=params, accept=METADATA_LIST)
        items = need(answer, "the pods of the attempt").get("items") or []
        there = {str(one["metadata"]["name"]): one["metadata"] for one in items}

        def is_there(place: tuple[str, int]) -> bool:
            meta = there.get(_pod_name(plan, place))
            return owner_uid(meta, labels.ReplicaLabels(plan.run, plan.attempt, *place)) == owner

        return [place for place in places if not is_there(place)]

    async def _settle(self, plan: Plan, place: tuple[str, int], answer: ApiAnswer, *, owner: str) -> None:
        name = _pod_name(plan, place)
        if answer.is_good:
            self.created(answer.thing)
            return
        if not answer.is_there_already:
            if answer.is_over_quota and (lacks := answer.beyond_quota(_wanted(plan, self.site))):
                raise Refused(
                    f"the quota of its namespace is too small for the attempt: it needs {lacks}: {answer.words}"
                )
            need_created(answer, f"pod {name}")
        body = need(await self._read("pods", name), f"pod {name}")
        found = owner_uid(body.get("metadata"), labels.ReplicaLabels(plan.run, plan.attempt, *place))
        if found == owner:
            self.created(body)
        elif found:
            raise Unreachable(f"pod {name} of a deleted owner is still being removed")
        else:
            raise Refused(f"pod {name} exists and is not Muster's; delete it")

    async def _read(self, kind: str, name: str) -> ApiAnswer:
        with faultpoints.around("kube.read"):
            return await self.api.call("GET", f"{self._path(kind)}/{name}")

    async def _create(self, kind: str, body: Manifest) -> ApiAnswer:
        answer = await self._post(kind, body)
        if answer.lacks_right:
            answer = await self._ask_again(kind, body, denied=answer)
        # a version conflict, at a quota that many calls update at once
        if answer.status == 409 and not answer.is_there_already:
            raise Unreachable(answer.words)
        return answer

    async def _post(self, kind: str, body: Manifest) -> ApiAnswer:
        return await self.api.call("POST", self._path(kind), body=body, accept=METADATA)

    async def _ask_again(self, kind: str, body: Manifest, *, denied: ApiAnswer) -> ApiAnswer:
        """Return the answer of a server that has read its roles. One that has just started denies everything.

        Raises Unreachable while it is not ready.
        """
        ready = await self.api.call("GET", "readyz")
        if not ready.is_good:
            raise Unreachable(f"{denied.words} (the API server is not ready)")
        return await self._post(kind, body)

    def _path(self, kind: str) -> str:
        group = GROUPS.get(kind, "api/v1")
        return f"{group}/namespaces/{self.site.namespace}/{kind}"


def _pod_name(plan: Plan, place: tuple[str, int]) -> str:
    return labels.pod(plan.run, plan.attempt, *place, plan.incarnation(*place))


def _wanted(plan: Plan, site: Site) -> Mapping[str, int]:
    """Return what the replicas that must run at once ask for, by the names under which quotas count it."""
    found = Counter[str]()
    for role in plan.roles:
        count = role.least or role.replicas
        found["pods"] += count
        found["count/pods"] += count
        for name, amount in manifests.devices_of(plan.resource, role, site).items():
            found[f"requests.{name}"] += count * int(amount)
    return found
