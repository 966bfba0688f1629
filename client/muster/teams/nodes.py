"""Operations on nodes that platform administrators exclude."""

from __future__ import annotations

from muster.errors import NotFound
from muster.http.call import Call, nothing, page, place
from muster.http.session import Session
from muster.teams.models_nodes import ExcludedNode, SuspectedNode


class Nodes(Session):
    async def excluded_nodes(self) -> list[ExcludedNode]:
        """Return the nodes that new pods stay away from, as a platform administrator."""
        return await self._whole(page("/excluded-nodes", parse=ExcludedNode.parse))

    async def suspected_nodes(self) -> list[SuspectedNode]:
        """Return the nodes that verdicts blame for the failures of several jobs within a day, worst first."""
        return await self._whole(page("/suspected-nodes", parse=SuspectedNode.parse))

    async def exclude_node(self, cluster: str, name: str, *, reason: str) -> ExcludedNode:
        """Keep new pods off a node, as a platform administrator. Raises Conflict where it is excluded already."""
        body = {"cluster": cluster, "name": name, "reason": reason}
        return await self._send(Call("POST", "/excluded-nodes", ExcludedNode.parse, json=body))

    async def readmit_node(self, cluster: str, name: str) -> None:
        """Let new pods on a node again. Raises NotFound where it is not excluded."""
        found = [one for one in await self.excluded_nodes() if (one.cluster, one.name) == (cluster, name)]
        missing = f"node {name} of cluster {cluster} is not excluded: `muster nodes list` shows those that are"
        if not found:
            raise NotFound(404, detail=missing)
        return await self._send(Call("DELETE", place("excluded-nodes", found[0].id), nothing, missing=missing))
