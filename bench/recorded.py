"""A bare watch that keeps what it receives: `python -m bench.recorded KUBECONFIG NAMESPACE FILE`, until it is ended.

Each line of the file is the time (seconds since the epoch), a tab, and the event as the server sent it. Prints "ready" once.
"""

import json
import sys
import time

import uvloop

from jobs.clusters.kubernetes.api.client import Api
from jobs.clusters.kubernetes.build.options import ApiAccess


async def main(kubeconfig: str, namespace: str, file: str) -> None:
    api = Api(ApiAccess(kubeconfig))
    path = f"api/v1/namespaces/{namespace}/pods"
    version = (await api.call("GET", path, params={"limit": "1"})).body["metadata"]["resourceVersion"]
    print("ready", flush=True)
    with open(file, "wb") as out:
        while True:  # the server ends a watch that reads too slowly; the next one begins where it stood
            params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600"}
            last = b""
            async for last in api.lines(path, params=params, silence_seconds=600):
                out.write(b"%.6f\t%s\n" % (time.time(), last))
                out.flush()
            version = json.loads(last)["object"]["metadata"]["resourceVersion"] if last else version


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:4]))
