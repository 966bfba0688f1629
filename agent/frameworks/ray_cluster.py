"""Run by Ray's own interpreter beside the driver: waits for the workers, then reports what nodes have and what waits.

The GCS' client is what `ray status` and the autoscaler use; no public call lists nodes without becoming a driver.

Ray keeps a task, an actor or a placement group waiting for ever if no node has what it asks for, and prints nothing
about it where its dashboard is off. Once a job has all of its nodes, the wait would not end. So a line of the log
names such a request. The numbers of each node go to the agent (`nodes` in message_checks.py), in place of Ray's dashboard.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from ..ranks import shim
from ..ranks.message_checks import MOST_NODES

COUNT_SECONDS = 0.1
FIRST_LOOK_SECONDS = 1.0
LOOK_SECONDS = 5.0
LOOK_SHARE = 50  # a look that takes long, in a large cluster, is followed by a rest of so many times that
MOST_LINES = 50
_ALIVE = 0  # GcsNodeInfo.state
_DEAD = 2  # autoscaler.NodeStatus
# A bundle that is reserved already has resources of its own, named after it (src/ray/common/bundle_spec.h).
_RESERVED = "_group_"
_RESOURCES = {"cpu": "CPU", "gpu": "GPU", "object_store_bytes": "object_store_memory"}  # ours: Ray's
# ActorTableData.ActorState: those between their first request and their last end.
_ACTORS_ALIVE, _ACTORS_WAITING = (2,), (0, 1, 3)


@dataclass(frozen=True)
class ResourceRequest:
    """What waits for a place: `count` times `amounts`, each on one node, and each on another one if `is_spread`."""

    what: str
    amounts: Mapping[str, float]
    count: int = 1
    is_spread: bool = False

    @property
    def key(self) -> str:
        return f"{self.what} {self.count} {_words(self.amounts)}"


def unplaceable(requests: Sequence[ResourceRequest], nodes: Sequence[Mapping[str, float]]) -> Dict[str, str]:
    """Return a line for each request that would not fit if the nodes were empty, by the request's key."""
    found = {}
    for one in requests:
        rooms = [_room(node, one) for node in nodes]
        if nodes and sum(rooms) < one.count:
            found[one.key] = _line(one, nodes, room=sum(rooms))
    return found


def _room(node: Mapping[str, float], request: ResourceRequest) -> int:
    """Return how often a node could hold what is asked for, were it empty."""
    fits = min((int(node.get(name, 0) / amount + 1e-6) for name, amount in request.amounts.items()), default=1)
    return min(fits, 1) if request.is_spread else fits


def _line(request: ResourceRequest, nodes: Sequence[Mapping[str, float]], *, room: int) -> str:
    asked = _words(request.amounts)
    if room:
        where = " on different nodes" if request.is_spread else ""
        return f"{request.what} asks for {request.count} bundles of {asked}{where}; all nodes together can hold {room}"
    most = max(nodes, key=lambda node: sum(min(1.0, node.get(name, 0) / n) for name, n in request.amounts.items()))
    has = _words({name: most.get(name, 0) for name in request.amounts})
    return f"no node has what {request.what} asks for: {asked}; the node with most has {has}"


def _words(amounts: Mapping[str, float]) -> str:
    return json.dumps({name: int(n) if n == int(n) else round(n, 4) for name, n in sorted(amounts.items())})


def main(address: str, wanted: int, quiet_seconds: float, *, ready: int) -> None:
    """Write to the descriptor `ready` once all workers have joined. Ends with an error where Ray cannot be asked."""
    from ray._raylet import GcsClient

    client = GcsClient(address=address)
    _await_workers(client, wanted, quiet_seconds)
    os.write(ready, b"1")
    os.close(ready)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what its client says when the cluster ends
    _watch(client, address)


def _await_workers(client: object, wanted: int, quiet_seconds: float) -> None:
    begun, is_printed = time.monotonic(), False
    while True:
        nodes = client.get_all_node_info(timeout=10).values()
        there = sum(node.state == _ALIVE for node in nodes) - 1
        if there >= wanted:
            return
        if not is_printed and time.monotonic() - begun > quiet_seconds:
            _say(f"{there} of {wanted} Ray workers have joined; the driver starts once all have")
            is_printed = True
        time.sleep(COUNT_SECONDS)


def _watch(client: Any, address: str) -> None:
    """Print each request once, if it is there at two looks: a node may be about to join. Report the numbers to the agent."""
    before: Set[str] = set()
    printed: Set[str] = set()
    most = int(os.environ.get("MUSTER_RAY_MOST_NODES") or 0)  # beside the head
    agent, actors, rest = Agent(), _Actors(address), FIRST_LOOK_SECONDS
    while True:
        time.sleep(rest)
        began = time.monotonic()
        state = _state(client)
        with contextlib.suppress(Exception):  # whatever another release of Ray lacks, the rest goes on
            agent.send({"nodes": numbers(state, _names(client), actors.count())})
        nodes = [dict(one.total_resources) for one in _alive(state)]
        # An elastic job may still get nodes.
        found = unplaceable(_requests(state), nodes) if len(nodes) > most else {}
        for key in sorted((found.keys() & before) - printed)[: MOST_LINES - len(printed)]:
            _say(found[key])
            printed.add(key)
        before = set(found)
        rest = max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - began))


def _state(client: Any) -> Any:
    """Return what Ray's second autoscaler reads: nodes with their resources, and what waits for a place."""
    from ray.core.generated import autoscaler_pb2

    reply = autoscaler_pb2.GetClusterResourceStateReply()
    reply.ParseFromString(client.get_cluster_resource_state())
    return reply.cluster_resource_state


def _alive(state: Any) -> List[Any]:
    return [one for one in state.node_states if one.status != _DEAD]


def _requests(state: Any) -> List[ResourceRequest]:
    found = [
        ResourceRequest("a task or an actor", dict(one.request.resources_bundle))
        for one in state.pending_resource_requests
    ]
    for group in state.pending_gang_resource_requests:
        bundles = [dict(one.resources_bundle) for one in group.requests]
        found += of_group(bundles, strategy=group.details.partition(":")[2].partition("|")[0])
    return [one for one in found if not any(_RESERVED in name for name in one.amounts)]


def numbers(state: Any, names: Mapping[bytes, str], actors: "Optional[Counter[Any]]") -> Dict[str, Any]:
    """Return the message for the agent: each node's amounts as [in use, in total], and what waits.

    `actors` counts by node id and by "waiting"; None where they cannot be counted.
    """
    from ray import __version__

    nodes = []
    for one in _alive(state)[:MOST_NODES]:
        total, free = one.total_resources, one.available_resources
        node: Dict[str, Any] = {
            ours: [max(0.0, total[theirs] - free[theirs] if theirs in free else total[theirs]), total[theirs]]
            for ours, theirs in _RESOURCES.items()
            if theirs in total
        }
        if actors is not None:
            node["actors"] = actors[one.node_id]
        nodes.append({"name": names.get(one.node_id, one.node_ip_address), **node})
    waiting = sum(one.count for one in state.pending_resource_requests)
    found = {"framework": f"Ray {__version__}", "nodes": sorted(nodes, key=_by_role), "waiting": waiting}
    return found if actors is None else {**found, "actors_waiting": actors["waiting"]}


def _by_role(node: Mapping[str, Any]) -> "tuple[str, int, str]":
    role, _, number = str(node["name"]).rpartition("-")
    return (role, int(number), "") if number.isdigit() else ("", 0, str(node["name"]))


def _names(client: Any) -> Dict[bytes, str]:
    """Return the name that each node was started with, by its id."""
    return {node_id.binary(): node.node_name for node_id, node in client.get_all_node_info(timeout=10).items()}


class _Actors:
    """Counts actors by the node that they are on, and those that wait for one."""

    def __init__(self, address: str) -> None:
        self._address, self._accessor = address, None

    def count(self) -> "Optional[Counter[Any]]":
        """Return None where this release of Ray has no such call."""
        try:
            from ray.core.generated import gcs_pb2

            found: Counter[Any] = Counter()
            for text in self._connected().get_actor_table(None, None):
                actor = gcs_pb2.ActorTableData.FromString(text)
                if actor.state in _ACTORS_ALIVE:
                    found[actor.address.node_id] += 1
                elif actor.state in _ACTORS_WAITING:
                    found["waiting"] += 1
            return found
        except Exception:  # the call is not public: its name and its arguments may change
            return None

    def _connected(self) -> Any:
        from ray._raylet import GcsClientOptions, GlobalStateAccessor

        if self._accessor is None:
            options = GcsClientOptions.create(
                self._address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
            )
            self._accessor = GlobalStateAccessor(options)
            self._accessor.connect()
        return self._accessor


class Agent:
    """The agent's socket for reports."""

    def __init__(self) -> None:
        self._socket: Optional[socket.socket] = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; drop it where nobody listens."""
        try:
            if self._socket is None:
                self._socket = shim.connect(os.environ[shim.SOCKET_ENV])
                self._socket.settimeout(2.0)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except (OSError, KeyError):
            if self._socket is not None:
                self._socket.close()
            self._socket = None


def of_group(bundles: Sequence[Mapping[str, float]], *, strategy: str) -> List[ResourceRequest]:
    """Return what a placement group asks for: equal bundles together, and all on one node with STRICT_PACK."""
    if strategy == "STRICT_PACK":
        total: Counter[str] = Counter()
        for one in bundles:
            total.update(one)
        bundles = [total]
    counts = Counter(tuple(sorted(one.items())) for one in bundles)
    is_spread = strategy == "STRICT_SPREAD"
    return [ResourceRequest("a placement group", dict(one), count, is_spread) for one, count in counts.items()]


def _say(words: str) -> None:
    print(f"muster: {words}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), ready=int(sys.argv[4]))
