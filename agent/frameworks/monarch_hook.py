"""Runs at the start of each Python below a Monarch replica, before the script.

An actor's process that gets a RANK becomes a rank of its replica. On a local cluster a controller's `KubernetesJob`
learns its hosts from Muster: there is no Kubernetes to ask.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from typing import Any, Optional

from . import late_ranks, on_import

HOSTS_ENV = "MUSTER_MONARCH_HOSTS"  # of a local controller: {mesh: [[address, port], ...]}
_ACTOR = b"monarch._src.actor.bootstrap_main"  # what Monarch runs for each process of a mesh
_JOBS = "monarch._src.job.kubernetes"
_MESH_LABEL = re.compile(r"monarch\.pytorch\.org/mesh-name=([a-z0-9]+)")
LOOK_SECONDS = 0.1


def setup() -> None:
    _write_whole_lines()
    if os.environ.get(HOSTS_ENV):
        on_import.change({_JOBS: _localize})
    with open("/proc/self/cmdline", "rb") as file:
        if _ACTOR in file.read().split(b"\0"):
            late_ranks.watch()


def _write_whole_lines() -> None:
    """Write each line at once: the actors of a host share its pipe.

    Unbuffered, as the agent starts Python, `print` writes a text and its newline in two calls, between which another
    process may write: two lines become one, and only one rank's.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)


def _localize(module: Any) -> None:
    configure, transports = module.configure, module.ChannelTransport

    def configured(**options: Any) -> Any:
        # A name of this machine may have no address but 127.0.0.1, which Monarch refuses for it.
        if options.get("default_transport") == transports.TcpWithHostname:
            options["default_transport"] = transports.TcpWithLocalhost
        return configure(**options)

    def wait_for_ready_pods(
        self: Any, label_selector: str, num_replicas: int, pod_rank_label: str, timeout: Optional[int] = None
    ) -> Any:
        hosts = _hosts(label_selector, num_replicas)
        _await(hosts, timeout)
        return [module._MonarchMeshPod(name=address, ip=address, port=port) for address, port in hosts]

    module.configure = configured
    module.KubernetesJob._wait_for_ready_pods = wait_for_ready_pods


def _hosts(selector: str, count: int) -> Any:
    meshes = json.loads(os.environ[HOSTS_ENV])
    there = ", ".join(f"{name} with {len(hosts)} hosts" for name, hosts in meshes.items())
    found = _MESH_LABEL.search(selector)
    if not found or found.group(1) not in meshes:
        raise RuntimeError(f"no mesh of this job is selected by {selector}; it has {there}")
    hosts = meshes[found.group(1)]
    if count > len(hosts):
        raise RuntimeError(f"mesh {found.group(1)} has no {count} hosts; this job has {there}")
    return hosts[:count]


def _await(hosts: Any, timeout: Optional[int]) -> None:
    """Wait until every host listens. Raises RuntimeError with the first that does not when the time is over."""
    end = None if timeout is None else time.monotonic() + timeout
    for address, port in hosts:
        while True:
            try:
                socket.create_connection((address, port), 2).close()
                break
            except OSError as error:
                if end is not None and time.monotonic() >= end:
                    raise RuntimeError(f"host {address}:{port} does not answer: {error}") from error
            time.sleep(LOOK_SECONDS)
