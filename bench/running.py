"""An independent eye: `python -m bench.running KUBECONFIG NAMESPACE COUNT running|gone` watches pods and says when all were so.

Prints "ready" once it sees, then one JSON line: the time at which COUNT pods were that, in seconds since the epoch.
"""

import asyncio
import json
import sys
import time

from jobs.clusters.kubernetes.api.client import Api
from jobs.clusters.kubernetes.build.options import ApiAccess


async def main(kubeconfig: str, namespace: str, count: int, until: str) -> None:
    api = Api(ApiAccess(kubeconfig))
    path = f"api/v1/namespaces/{namespace}/pods"
    listed = await api.call("GET", path)
    version = listed.body["metadata"]["resourceVersion"]
    print("ready", flush=True)
    found: set[str] = set()
    while len(found) < count:  # the server ends a watch that reads too slowly; the next one begins where it stood
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600"}
        async for line in api.lines(path, params=params, silence_seconds=600):
            event = json.loads(line)
            pod = event["object"]
            version = pod["metadata"]["resourceVersion"]
            is_gone = event["type"] == "DELETED"
            if is_gone if until == "gone" else pod["status"].get("phase") == "Running":
                found.add(pod["metadata"]["name"])
            if len(found) == count:
                break
    print(json.dumps({"at": time.time()}), flush=True)
    await api.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
