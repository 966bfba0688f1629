"""Operations on the clusters of the server."""

from __future__ import annotations

from typing import Any

from muster.errors import WaitTimeout
from muster.http.call import PAGE_SIZE, Call, get, given, nothing, page, place
from muster.http.session import Session
from muster.teams.models_clusters import Cluster, ClusterNode, Inspected, PodCheck, TeamNamespace

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 3.0
LONGEST_SECONDS = 900.0  # longer than a server goes on with one


class Clusters(Session):
    async def clusters(self) -> list[Cluster]:
        """Return the clusters of the server, as a platform administrator."""
        return await self._whole(page("/clusters", parse=Cluster.parse))

    async def cluster(self, name: str) -> Cluster:
        """Return one cluster, as a platform administrator. Raises NotFound."""
        return await self._send(get(place("clusters", name), parse=Cluster.parse, missing=_missing(name)))

    async def add_cluster(
        self, name: str, *, password: str, options: dict[str, Any], kubeconfig: str = "", context: str = "",
        in_cluster: bool = False,
    ) -> Cluster:  # fmt: skip
        """Add a cluster by the text of a kubeconfig, or by the account of the pods that the server itself runs in.

        `options` as in MUSTER_CLUSTERS: NAMESPACE, IMAGE, CONTROL_URL, ... `password` is your own.
        """
        body = {"name": name, "password": password, "options": options, "in_cluster": in_cluster}
        body |= {key: value for key, value in (("kubeconfig", kubeconfig), ("context", context)) if value}
        return await self._send(Call("POST", "/clusters", Cluster.parse, json=body))

    async def set_cluster(
        self, name: str, *, password: str, version: int, options: dict[str, Any] | None = None, kubeconfig: str = "",
        context: str = "",
    ) -> Cluster:  # fmt: skip
        """Replace all options of an added cluster, its kubeconfig, or both.

        `version` is the one that you read. Raises NotFound, and Conflict where somebody changed it meanwhile.
        """
        body: dict[str, Any] = {"password": password, "version": version}
        body |= {} if options is None else {"options": options}
        body |= {key: value for key, value in (("kubeconfig", kubeconfig), ("context", context)) if value}
        path = place("clusters", name)
        return await self._send(Call("PATCH", path, Cluster.parse, json=body, missing=_missing(name)))

    async def remove_cluster(self, name: str, *, password: str) -> None:
        """Forget an added cluster that nothing uses. Raises NotFound and Conflict."""
        path = place("clusters", name, "remove")
        await self._send(Call("POST", path, nothing, json={"password": password}, missing=_missing(name)))

    async def team_namespaces(self, cluster: str) -> list[TeamNamespace]:
        """Return the namespaces of a cluster that belong to teams, as a platform administrator. Raises NotFound."""
        path = place("clusters", cluster, "namespaces")
        return await self._whole(page(path, parse=TeamNamespace.parse, missing=_missing(cluster)))

    async def bind_namespace(self, cluster: str, team: str, namespace: str, *, make: bool = False) -> TeamNamespace:
        """Have a team's jobs made in a namespace of its own, from the next one on; `make`: which Muster makes first.

        Raises NotFound and Conflict.
        """
        body = {"team": team, "namespace": namespace, **({"make": True} if make else {})}
        path = place("clusters", cluster, "namespaces")
        return await self._send(Call("POST", path, TeamNamespace.parse, json=body, missing=_missing(cluster)))

    async def release_namespace(self, cluster: str, team: str) -> None:
        """Have a team's jobs made in the cluster's own namespace again. Raises NotFound and Conflict."""
        missing = f"no cluster {cluster} or no team {team}: `muster clusters list` and `muster teams` show them"
        await self._send(Call("DELETE", place("clusters", cluster, "namespaces", team), nothing, missing=missing))

    async def check_cluster(self, name: str) -> list[Inspected]:
        """Have the server look at a cluster, and return what it found. Raises NotFound."""
        return await self._whole(page(place("clusters", name, "check"), parse=Inspected.parse, missing=_missing(name)))

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

    async def check_pods(
        self, name: str, *, image: str | None = None, queue: str | None = None, timeout: float = LONGEST_SECONDS
    ) -> PodCheck:
        """Have the server look at a cluster by pods of this image, or of a queue's, and return what it found.

        One that is running for the same image is waited for. Raises NotFound, InvalidInput, Conflict, and WaitTimeout
        after `timeout` seconds, after which the check goes on.
        """
        path, body = place("clusters", name, "pod-checks"), given(image=image, queue=queue)
        found = await self._send(Call("POST", path, PodCheck.parse, json=body, missing=_missing(name)))
        waited = 0.0
        while found.is_running:
            if waited > timeout:
                raise WaitTimeout(f"the check of cluster {name} has not ended after {waited:.0f} s")
            pause = min(max(FIRST_PAUSE_SECONDS, waited / 10), LONGEST_PAUSE_SECONDS)
            await self._port.sleep(pause)
            waited += pause
            found = await self.pod_check(name, found.id)
        return found

    async def pod_check(self, name: str, id: int) -> PodCheck:
        """Return a look at a cluster by pods, as it is now. Raises NotFound."""
        return await self._send(
            get(place("clusters", name, "pod-checks", id), parse=PodCheck.parse, missing=f"no check {id} of {name}")
        )


def _missing(name: str) -> str:
    return f"no cluster {name}: `muster clusters list` shows those of this server"
