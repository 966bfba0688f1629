"""List all nodes, and where the account may, the pods of all namespaces: what others hold of the nodes' devices.

Both rights are optional (docs/kubernetes.md). Whether pods may be listed is asked first, every few minutes, so that a
cluster without the right logs no refusal each minute.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from common import faultpoints
from common.errors import Unreachable
from jobs.core.node_seen import NodeSeen

from ..api import reviews
from ..api.answers import ApiAnswer, need
from ..api.client import Api
from ..api.decode import read_list
from ..build.site import Site
from ..facts.nodes import held_by_others, read_seen

SECONDS = 10.0  # each request
ASKED_SECONDS = 300.0
PAGE, MOST_PAGES = 1000, 50  # pods of one request; with more of them what others hold is not known
LIVE = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class NodeList:
    """`clock` gives seconds since the epoch. Use from coroutines on the loop only."""

    def __init__(self, api: Api, site: Site, *, clock: Callable[[], float]):
        self._api, self._clock = api, clock
        self._known = frozenset(site.devices.values())
        self._may_list, self._asked_at = False, 0.0

    async def read(self, ours: Collection[str]) -> list[NodeSeen] | None:
        """Return the nodes, None without the right to see them. `ours`: namespaces that Muster uses. Raises Unreachable."""
        answer = await self._get("nodes", resourceVersion="0")  # served from the API server's cache
        if answer.status == 403:
            return None
        need(answer, "the nodes")
        seen = [one for thing in _page(answer)[0] if (one := read_seen(thing, known=self._known)) is not None]
        others = await self._others(ours)
        return seen if others is None else [replace(one, others=others[one.name]) for one in seen]

    async def _others(self, ours: Collection[str]) -> Counter[str] | None:
        """Return what pods of others hold, by node; None where that is not known."""
        if not await self._may_list_pods():
            return None
        found, following = Counter[str](), ""
        for _ in range(MOST_PAGES):
            more = {"continue": following} if following else {}
            answer = await self._get("pods", fieldSelector=LIVE, limit=str(PAGE), **more)
            if not answer.is_good:
                self._may_list = self._may_list and answer.status != 403
                return None
            pods, following = _page(answer)
            found += held_by_others(pods, known=self._known, ours=ours)
            if not following:
                return found
        return None

    async def _may_list_pods(self) -> bool:
        """Ask the server about the account's own right; what it said last holds for some minutes."""
        if self._clock() >= self._asked_at + ASKED_SECONDS:
            self._may_list = await reviews.may(self._api, "list", "pods", seconds=SECONDS)
            self._asked_at = self._clock()
        return self._may_list

    async def _get(self, kind: str, **params: str) -> ApiAnswer:
        with faultpoints.around("nodes.list"):
            return await self._api.call("GET", f"api/v1/{kind}", params=params, seconds=SECONDS)


def _page(answer: ApiAnswer) -> tuple[list[Any], str]:
    try:
        return read_list(answer.content)
    except ValueError as error:
        raise Unreachable(f"the cluster's answer cannot be read: {error}") from error
