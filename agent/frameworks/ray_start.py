"""`ray start` with more patience than Ray has: run by its own interpreter, `python -m ... [--join ADDRESS] start ...`.

Ray gives a node 30 s to register (ray/_private/node.py). Its raylet waits 15 s for each agent, a Python program that imports
for seconds, to write the port it chose into a file, and aborts (WaitForDashboardAgentPorts; Ray's issue 65983). No setting
changes either, and a busy machine or packages on a network volume take longer. So the ports are chosen and written here.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import socket
import sys
import time
from typing import Any, Dict, Iterator, List

PATIENCE_SECONDS = 120.0  # for a node to be known
LOOK_SECONDS = 0.1
PORTS = range(20000, 32000)  # below the ephemeral ones, which the kernel gives to others
_NOT_IN_USE = -1  # what an agent without its optional packages writes
_ALIVE = 0  # GcsNodeInfo.state


def main() -> None:
    with contextlib.suppress(ImportError, AttributeError):  # another release of Ray
        _be_patient()
    if sys.argv[1] == "--join":
        address = sys.argv[2]
        del sys.argv[1:3]
        with contextlib.suppress(ImportError, AttributeError, TypeError):  # another release, which may wait by itself
            _await_head(address)
    from ray.scripts.scripts import main as ray

    sys.argv[0] = "ray"
    ray()


def _be_patient() -> None:
    from ray._private import services

    look, start, until = services.get_node, services.start_raylet, time.monotonic() + PATIENCE_SECONDS
    takes = inspect.signature(start)
    raylets: List[Any] = []

    def start_raylet(*given: Any, **named: Any) -> Any:
        bound = takes.bind(*given, **named)
        with contextlib.suppress(ImportError, AttributeError, KeyError, TypeError):  # another release of Ray
            _tell_ports(bound.arguments)
        started = start(*bound.args, **bound.kwargs)
        raylets.append((started.process, bound.arguments.get("session_dir", "")))
        return started

    def get_node(*given: Any) -> Any:
        while True:
            try:
                return look(*given)
            except RuntimeError:
                for process, session in raylets:
                    if process.poll() is not None:
                        sys.exit(f"ray start: the raylet ended while it started: {_reason(session)}")
                if time.monotonic() > until:
                    raise
                time.sleep(LOOK_SECONDS)

    services.get_node, services.start_raylet = get_node, start_raylet


def _tell_ports(asked: Dict[str, Any]) -> None:
    """Choose the agents' ports where nobody did, and write all to the files that the raylet reads."""
    from ray import _raylet
    from ray._private.utils import get_dashboard_dependency_error

    files = {
        "runtime_env_agent_port": _raylet.RUNTIME_ENV_AGENT_PORT_NAME,
        "metrics_agent_port": _raylet.METRICS_AGENT_PORT_NAME,
        "metrics_export_port": _raylet.METRICS_EXPORT_PORT_NAME,
        "dashboard_agent_listen_port": _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
    }
    used = set(files) if get_dashboard_dependency_error() is None else {"runtime_env_agent_port"}
    ports = _free_ports()
    for name in used:
        asked[name] = asked.get(name) or next(ports)
    for name, file in files.items():
        port = asked[name] if name in used else _NOT_IN_USE
        _raylet.persist_port(asked["session_dir"], asked["node_id"], file, port)


def _free_ports() -> Iterator[int]:
    """Yield ports, each once, that nobody has on any address: some agents listen on all of them."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        yield port
    raise OSError("no port is free")


def _reason(session: str) -> str:
    """Return why a raylet aborted, as its output says it: one line."""
    for name in ("raylet.err", "raylet.out"):
        path = os.path.join(session, "logs", name)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    if "Check failed" in line:
                        return line.partition("(raylet)")[2].strip() or line.strip()
    return "its log gives no reason"


def _await_head(address: str) -> None:
    """Wait for the head's own node: its port answers a moment before, and `ray start` fails in between."""
    from ray._raylet import GcsClient

    client = GcsClient(address=address)
    while not any(node.is_head_node and node.state == _ALIVE for node in client.get_all_node_info(timeout=10).values()):
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
