"""Run by Ray's own interpreter beside the driver: waits for the workers, then names requests that no node can hold.

The GCS' client is what `ray status` and the autoscaler use; no public call lists nodes without becoming a driver.

Ray keeps a task, an actor or a placement group waiting for ever if no node has what it asks for, and prints nothing
about it where its dashboard is off. A job's nodes do not change, so that the wait would not end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Set

COUNT_SECONDS = 0.1
LOOK_SECONDS = 5.0
MOST_LINES = 50
_ALIVE = 0  # GcsNodeInfo.state
_DEAD = 2  # autoscaler.NodeStatus
# A bundle that is reserved already has resources of its own, named after it (src/ray/common/bundle_spec.h).
_RESERVED = "_group_"

Amounts = Dict[str, float]


@dataclass(frozen=True)
class Request:
    """What waits for a place: `count` times `amounts`, each on one node, and each on another one if `is_spread`."""

    what: str
    amounts: Mapping[str, float]
    count: int = 1
    is_spread: bool = False

    @property
    def key(self) -> str:
        return f"{self.what} {self.count} {_words(self.amounts)}"


def unplaceable(requests: Sequence[Request], nodes: Sequence[Mapping[str, float]]) -> Dict[str, str]:
    """Return a line for each request that would not fit if the nodes were empty, by the request's key."""
    found = {}
    for one in requests:
        rooms = [_room(node, one) for node in nodes]
        if nodes and sum(rooms) < one.count:
            found[one.key] = _line(one, nodes, room=sum(rooms))
    return found


def _room(node: Mapping[str, float], request: Request) -> int:
    """Return how often a node could hold what is asked for, were it empty."""
    fits = min((int(node.get(name, 0) / amount + 1e-6) for name, amount in request.amounts.items()), default=1)
    return min(fits, 1) if request.is_spread else fits


def _line(request: Request, nodes: Sequence[Mapping[str, float]], *, room: int) -> str:
    asked = _words(request.amounts)
    if room:
        where = " on different nodes" if request.is_spread else ""
        return f"{request.what} asks for {request.count} bundles of {asked}{where}; all nodes together can hold {room}"
    most = max(nodes, key=lambda node: sum(min(1.0, node.get(name, 0) / n) for name, n in request.amounts.items()))
    has = _words({name: most.get(name, 0) for name in request.amounts})
    return f"no node has what {request.what} asks for: {asked}; the node with most has {has}"


def _words(amounts: Mapping[str, float]) -> str:
    return json.dumps({name: int(n) if n == int(n) else round(n, 4) for name, n in sorted(amounts.items())})


def main(address: str, wanted: int, told_after: float, ready: int) -> None:
    """Write to the descriptor `ready` once all workers have joined. Ends with an error where Ray cannot be asked."""
    from ray._raylet import GcsClient

    client = GcsClient(address=address)
    _await_workers(client, wanted, told_after)
    os.write(ready, b"1")
    os.close(ready)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what its client says when the cluster ends
    _watch(client)


def _await_workers(client: object, wanted: int, told_after: float) -> None:
    begun, is_told = time.monotonic(), False
    while True:
        nodes = client.get_all_node_info(timeout=10).values()
        there = sum(node.state == _ALIVE for node in nodes) - 1
        if there >= wanted:
            return
        if not is_told and time.monotonic() - begun > told_after:
            _say(f"{there} of {wanted} Ray workers have joined; the driver starts once all have")
            is_told = True
        time.sleep(COUNT_SECONDS)


def _watch(client: object) -> None:
    """Print each request once, if it is there at two looks: a node may be about to join."""
    before: Set[str] = set()
    told: Set[str] = set()
    while len(told) < MOST_LINES:
        time.sleep(LOOK_SECONDS)
        found = unplaceable(*_asked(client))
        for key in sorted((found.keys() & before) - told):
            _say(found[key])
            told.add(key)
        before = set(found)


def _asked(client: object) -> "tuple[List[Request], List[Amounts]]":
    """Return what waits and what each living node has in total, as Ray's second autoscaler reads it."""
    from ray.core.generated import autoscaler_pb2

    reply = autoscaler_pb2.GetClusterResourceStateReply()
    reply.ParseFromString(client.get_cluster_resource_state())
    state = reply.cluster_resource_state
    requests = [
        Request("a task or an actor", dict(one.request.resources_bundle)) for one in state.pending_resource_requests
    ]
    for group in state.pending_gang_resource_requests:
        bundles = [dict(one.resources_bundle) for one in group.requests]
        requests += of_group(bundles, strategy=group.details.partition(":")[2].partition("|")[0])
    nodes = [dict(one.total_resources) for one in state.node_states if one.status != _DEAD]
    return [one for one in requests if not any(_RESERVED in name for name in one.amounts)], nodes


def of_group(bundles: Sequence[Mapping[str, float]], *, strategy: str) -> List[Request]:
    """Return what a placement group asks for: equal bundles together, and all on one node with STRICT_PACK."""
    if strategy == "STRICT_PACK":
        total: Counter[str] = Counter()
        for one in bundles:
            total.update(one)
        bundles = [total]
    counts = Counter(tuple(sorted(one.items())) for one in bundles)
    is_spread = strategy == "STRICT_SPREAD"
    return [Request("a placement group", dict(one), count, is_spread) for one, count in counts.items()]


def _say(words: str) -> None:
    print(f"muster: {words}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
