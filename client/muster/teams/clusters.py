"""Operations on the clusters of the server."""

from __future__ import annotations

from muster.http.call import PAGE_SIZE, get, page, place
from muster.http.session import Session
from muster.teams.models_clusters import Cluster, ClusterNode, Inspected


class Clusters(Session):
    async def clusters(self) -> list[Cluster]:
        """Return the clusters that the server is configured with, as a platform administrator."""
        return await self._whole(page("/clusters", parse=Cluster.parse))

    async def check_cluster(self, name: str) -> list[Inspected]:
        """Have the server look at a cluster, and return what it found. Raises NotFound."""
        missing = f"no cluster {name}: `muster clusters list` shows those of this server"
        return await self._whole(page(place("clusters", name, "check"), parse=Inspected.parse, missing=missing))

    async def cluster_nodes(self, name: str) -> list[ClusterNode]:
        """Return the nodes of a cluster and who holds what of each, for those who may submit to a queue there."""
        missing = f"no cluster {name}, or you may not submit to any of its queues"
        path = place("clusters", name, "nodes")
        return await self._whole(page(path, parse=ClusterNode.parse, missing=missing, limit=2 * PAGE_SIZE))

    async def cluster_node(self, cluster: str, node: str) -> ClusterNode:
        """Return a node by its `key`, with its history and the verdicts that blame it. Raises NotFound."""
        missing = f"no node {node} of cluster {cluster}: `muster clusters nodes {cluster}` lists those that you may see"
        return await self._send(
            get(place("clusters", cluster, "nodes", node), parse=ClusterNode.parse, missing=missing)
        )
