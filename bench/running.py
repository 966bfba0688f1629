"""An independent eye: `python -m bench.running KUBECONFIG NAMESPACE COUNT` watches pods and says when all of them ran.

Prints "ready" once it sees, then one JSON line: the time at which COUNT pods were Running, in seconds since the epoch.
"""

import asyncio
import json
import sys
import time

from jobs.clusters.kube_http import Api
from jobs.clusters.kube_options import Access


async def main(kubeconfig: str, namespace: str, count: int) -> None:
    api = Api(Access(kubeconfig))
    path = f"api/v1/namespaces/{namespace}/pods"
    listed = await api.call("GET", path)
    version = listed.body["metadata"]["resourceVersion"]
    print("ready", flush=True)
    running: set[str] = set()
    while len(running) < count:  # the server ends a watch that reads too slowly; the next one begins where it stood
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600"}
        async for line in api.lines(path, params=params, silence_seconds=600):
            pod = json.loads(line)["object"]
            version = pod["metadata"]["resourceVersion"]
            if pod["status"].get("phase") == "Running":
                running.add(pod["metadata"]["name"])
            if len(running) == count:
                break
    print(json.dumps({"at": time.time()}), flush=True)
    await api.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
