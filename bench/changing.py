"""Change pods in an open loop: `python -m bench.changing KUBECONFIG NAMESPACE PER_SECOND SECONDS`, pod names on the standard input.

Change number n of all says so in a condition of its pod, which becomes the reason in the replica's row. Each begins at its
own moment, whether those before were answered or not; with 0 per second WIDTH are on their way at any time, which is as
fast as the server answers. Prints one JSON line: how many, and how late the latest began.
"""

import asyncio
import json
import sys
import time

import uvloop

from jobs.clusters.kubernetes.api.session import open_session
from jobs.clusters.kubernetes.build.options import ApiAccess

WORD = "change"
WIDTH = 32
PATCH = "application/strategic-merge-patch+json"


def body(number: int) -> bytes:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Bench", "message": f"{WORD} {number}"}
    return json.dumps({"status": {"conditions": [condition]}}).encode()


async def main(kubeconfig: str, namespace: str, rate: float, seconds: float, pods: list[str]) -> None:
    session = await open_session(ApiAccess(kubeconfig))
    # The answer is not read: the form that costs the server least.
    form = {"Content-Type": PATCH, "Accept": "application/vnd.kubernetes.protobuf"}
    headers = {**form, **await session.credentials()}
    late, wrong = 0.0, 0

    async def change(number: int, due: float) -> None:
        nonlocal late, wrong
        late = max(late, time.monotonic() - due)
        path = f"api/v1/namespaces/{namespace}/pods/{pods[number % len(pods)]}/status"
        async with session.http.patch(path, data=body(number), headers=headers) as answer:
            await answer.read()
            wrong += answer.status != 200

    async def in_turn(first: int) -> int:
        number = first
        while time.monotonic() < began + seconds:
            await change(number, time.monotonic())
            number += WIDTH
        return (number - first) // WIDTH

    async def in_time() -> int:
        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (early := due - time.monotonic()) > 0:
                await asyncio.sleep(early)
            tasks.append(asyncio.create_task(change(number, due)))
        await asyncio.gather(*tasks)
        return len(tasks)

    began = time.monotonic() + 0.2
    changes = await in_time() if rate else sum(await asyncio.gather(*map(in_turn, range(WIDTH))))
    print(json.dumps({"changes": changes, "late": late, "refused": wrong, "seconds": time.monotonic() - began}))
    await session.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4]), sys.stdin.read().split()))
