"""Operations on the clusters of the server."""

from __future__ import annotations

from muster.http.call import page, place
from muster.http.session import Session
from muster.teams.models_clusters import Cluster, Inspected


class Clusters(Session):
    async def clusters(self) -> list[Cluster]:
        """Return the clusters that the server is configured with, as a platform administrator."""
        return await self._whole(page("/clusters", parse=Cluster.parse))

    async def check_cluster(self, name: str) -> list[Inspected]:
        """Have the server look at a cluster, and return what it found. Raises NotFound."""
        missing = f"no cluster {name}: `muster clusters list` shows those of this server"
        return await self._whole(page(place("clusters", name, "check"), parse=Inspected.parse, missing=missing))
