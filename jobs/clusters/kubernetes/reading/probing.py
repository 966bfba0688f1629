"""The pods of a check on the API server: made one after the other, read, and deleted. What they say is in pod_findings.py."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from common import faultpoints
from common.errors import Refused, Unreachable
from jobs.clusters import Inspected
from jobs.core.probing import GIVEN_UP, Probe
from queues.shape import merge

from ..api.answers import need, need_created
from ..api.client import Api
from ..api.objects import get, items, text, words
from ..build import labels, probe
from ..build.probe import FIRST, SECOND
from ..build.site import Site
from . import raw_events
from .pod_findings import PodSaid, of_pods

# A pod that waits for a reason so long is not waited for any longer; one without a reason pulls its image.
HOPELESS_SECONDS = 30.0
MOST_BYTES = 256 << 10  # of a log
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Probing:
    """One check on one API server. `why`: why a pod gives no answer, by its status; `now`: seconds since the epoch."""

    api: Api
    site: Site
    agent: str
    need_agent: Callable[[], Awaitable[None]]
    why: Callable[[Any], str]
    now: float

    @property
    def pods(self) -> str:
        return f"api/v1/namespaces/{self.site.namespace}/pods"

    async def step(self, asked: Probe, *, is_late: bool) -> list[Inspected] | None:
        """Go one step on; return the findings once they are there. The pods stay until `remove`."""
        there = await self._there({labels.CHECK: asked.uid})
        first, second = (there.get(labels.check(asked.uid, part)) for part in (FIRST, SECOND))
        if first is None and not is_late:
            await self._remove_left_over()
            return await self._begin(asked)
        said = await self._said(first, is_late=is_late)
        if said.answer is None and not said.problem:
            return None
        other: PodSaid | None = None
        if said.answer is not None and not get(dict(said.answer), "port", "problem"):
            if second is None and not is_late:
                refused = await self._make(asked, SECOND, peer=said.address)
                if refused is None:
                    return None
                other = refused
            else:
                other = await self._said(second, is_late=is_late)
                if other.answer is None and not other.problem:
                    return None
        return of_pods(said, other, site=self.site, image=self._image(asked))

    async def remove(self, uid: str) -> bool:
        """Delete the pods of a check; called again until it returns True."""
        there = await self._there({labels.CHECK: uid})
        for name, pod in there.items():
            await self._delete(name, pod)
        return not there

    async def _begin(self, asked: Probe) -> list[Inspected] | None:
        try:
            await self.need_agent()
            if asked.namespace or self.site.network_policy:
                await self._open()
        except Refused as error:
            refused: PodSaid | None = PodSaid(problem=str(error), is_refused=True)
        else:
            refused = await self._make(asked, FIRST)
        return of_pods(refused, None, site=self.site, image=self._image(asked)) if refused else None

    async def _open(self) -> None:
        """Make the policy of checks, which stays: pods of a team's namespace reach nothing without one."""
        path = f"apis/networking.k8s.io/v1/namespaces/{self.site.namespace}/networkpolicies"
        with faultpoints.around("kube.probe"):
            answer = await self.api.call("POST", path, body=probe.policy(self.site))
        if not (answer.is_there_already or answer.lacks_right):  # without the right the check says what is closed
            need_created(answer, "the policy of checks")

    async def _make(self, asked: Probe, part: str, *, peer: str = "") -> PodSaid | None:
        """Make a pod. Return what is said of one that the cluster does not take."""
        body = probe.pod(asked, part, site=self.site, agent=self.agent, peer=peer)
        with faultpoints.around("kube.probe"):
            answer = await self.api.call("POST", self.pods, body=body)
        try:
            if not answer.is_there_already:
                need_created(answer, "a pod of the check")
        except Refused as error:
            return PodSaid(problem=str(error), is_refused=True)
        return None

    async def _said(self, pod: Any, *, is_late: bool) -> PodSaid:
        """Return what is known of a pod: its answer, or why there will be none; neither while there is hope."""
        if pod is None:
            return PodSaid(problem="it is gone, or was never made")
        node, status = words(get(pod, "spec", "nodeName"), most=253), get(pod, "status")
        known = PodSaid(node, text(get(status, "podIP")))
        is_over, trouble = get(status, "phase") in ENDED, ""
        if is_over or get(status, "phase") == "Running":
            answer, trouble = await self._printed(pod)
            if answer is not None and (is_over or known.address):
                return replace(known, answer=answer)
        problem = self.why(pod)
        if get(status, "phase") == "Failed" or (is_over and not trouble):
            return replace(known, problem=problem or "it printed no answer")
        if is_late:
            problem = problem or trouble or await self._warning(pod, is_late=True) or "it does not start in time"
            return replace(known, problem=problem)
        is_hopeless = self.now > _since(pod) + HOPELESS_SECONDS
        if is_hopeless and not problem and get(status, "phase") == "Pending":
            problem = await self._warning(pod)
        # An autoscaler may be making the node for which it waits.
        is_scaled = self.site.more_nodes and not node
        return replace(known, problem=problem) if is_hopeless and not is_scaled else known

    async def _printed(self, pod: Any) -> tuple[Mapping[str, Any] | None, str]:
        """Return the answer that a pod printed, or why its log cannot be read."""
        path = f"{self.pods}/{get(pod, 'metadata', 'name')}/log"
        with faultpoints.around("kube.probe"):
            said = await self.api.call(
                "GET", path, params={"container": probe.CONTAINER, "limitBytes": str(MOST_BYTES)}
            )
        return (printed(said.content), "") if said.is_good else (None, f"its log cannot be read: {said.words}")

    async def _warning(self, pod: Any, *, is_late: bool = False) -> str:
        """Return what Events warn of, of a pod whose status gives no reason: a network that is not set up, a failed mount.

        As long as the answer is not late, one that something else followed has passed: then the image is pulled.
        """
        found = await raw_events.read(self.api, self.site.namespace, names=[text(get(pod, "metadata", "name"))])
        events = found.events if is_late else found.events[:1]
        return next((f"{one.reason}: {one.message}" for one in events if one.type == "Warning"), "")

    async def _there(self, wanted: Mapping[str, str]) -> dict[str, Any]:
        params = {"labelSelector": labels.selector(wanted)} if wanted else {"labelSelector": labels.CHECK}
        with faultpoints.around("kube.probe"):
            answer = await self.api.call("GET", self.pods, params=params)
        found = items(need(answer, "the pods of the check").get("items"))
        return {text(get(one, "metadata", "name")): one for one in found}

    async def _remove_left_over(self) -> None:
        """Delete the pods of checks that died, of this installation or another: no check lasts so long."""
        for name, pod in (await self._there({})).items():
            if self.now > _since(pod) + GIVEN_UP.total_seconds():
                await self._delete(name, pod)

    async def _delete(self, name: str, pod: Any) -> None:
        body = {"preconditions": {"uid": text(get(pod, "metadata", "uid"))}}
        with faultpoints.around("kube.probe"):
            answer = await self.api.call("DELETE", f"{self.pods}/{name}", body=body)
        if answer.status not in (200, 202, 404, 409):  # 409: another pod has the name by now
            raise Unreachable(f"pod {name} of a check is not deleted yet: {answer.words}")

    def _image(self, asked: Probe) -> str:
        return merge(self.site.shape, asked.shape).image


def printed(log: bytes) -> Mapping[str, Any] | None:
    """Return what a pod of a check printed; None if it printed no answer."""
    for line in reversed(log.splitlines()):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.get("probe") == 1:
            return said
    return None


def _since(pod: Any) -> float:
    try:
        return datetime.fromisoformat(str(get(pod, "metadata", "creationTimestamp"))).timestamp()
    except ValueError:
        return 0.0
