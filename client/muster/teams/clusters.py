"""Operations on the clusters of the server."""

from __future__ import annotations

from muster.errors import WaitTimeout
from muster.http.call import Call, get, given, page, place
from muster.http.session import Session
from muster.teams.models_clusters import Cluster, Inspected, PodCheck

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 3.0
LONGEST_SECONDS = 900.0  # longer than a server goes on with one


class Clusters(Session):
    async def clusters(self) -> list[Cluster]:
        """Return the clusters that the server is configured with, as a platform administrator."""
        return await self._whole(page("/clusters", parse=Cluster.parse))

    async def check_cluster(self, name: str) -> list[Inspected]:
        """Have the server look at a cluster, and return what it found. Raises NotFound."""
        return await self._whole(page(place("clusters", name, "check"), parse=Inspected.parse, missing=_missing(name)))

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
