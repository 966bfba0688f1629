"""Monarch: meshes of hosts that wait for actors, and a controller that runs the user's script. Pure.

The script stays one that Monarch's own examples would run: `KubernetesJob(namespace=...).add_mesh(name, hosts)` finds the
hosts of a mesh by two labels of their pods (monarch/_src/job/kubernetes.py). Which actors run there, and which of them
get a RANK, is the script's business. `agent/frameworks/monarch.py` has what happens inside a replica.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from common.errors import Problem
from jobs.core.fields import MAX_NODES, Field, Type, quantity
from jobs.core.plan import Host, Index, Port, Role, Value, numbered
from jobs.core.spec import JobSpec

from . import _shapes

NAME = "monarch"
LABEL = "Monarch"
PER_NODE = "Processes of a host"
STOPPING = "The controller and all hosts get SIGTERM, and the meshes go; a resumed job starts with new ones."
KEY_ENV = ""  # Monarch has no authentication
PORT = 26600  # Monarch's default for a host
CONTROLLER = "controller"
MESH = "mesh"
PODS, OPERATOR = "pods", "MonarchMesh"
# What Monarch and MonarchMesh take; they allow 63 characters, but the name is part of a pod's name here, which is a host name.
MESH_NAME = r"[a-z][a-z0-9]{0,23}"
# What users write; dashes and capitals are left out (`_allowed`).
_WRITTEN = r"[A-Za-z][A-Za-z0-9_-]{0,40}"
FIELDS = (
    Field("mesh_name", Type.TEXT, "Name of the mesh", f"under which the script finds the job's hosts; {MESH} if omitted",
          remedy="Monarch allows lowercase letters and digits, at most 24, the first a letter", pattern=_WRITTEN),
    Field("more_meshes", Type.LIST, "Further meshes", "beside the first one, each as its name and its number of hosts",
          remedy="give words such as generators=2 evaluators=1", is_plain=True),
    Field("mesh_launcher", Type.TEXT, "Launcher of the meshes", f"what makes the hosts' pods: {PODS} for Muster itself, "
          f"or {OPERATOR}, if its operator runs in the cluster", remedy=f"use {PODS} or {OPERATOR}", default=PODS, pattern=f"{PODS}|{OPERATOR}"),
    quantity("controller_cpu", "CPU of the controller", "CPU of the controller's pod in place of the cluster's", example="4 or 500m"),
    quantity("controller_memory", "Memory of the controller", "memory of the controller's pod in place of the cluster's", example="16Gi"),
    quantity("host_cpu", "CPU of a host", "CPU of each host's pod in place of the cluster's", example="8 or 500m"),
    quantity("host_memory", "Memory of a host", "memory of each host's pod in place of the cluster's", example="32Gi"),
)  # fmt: skip
RESERVED_ENV = frozenset(
    {
        "MONARCH_PORT",
        "MUSTER_MONARCH_CONTROLLER",
        "MUSTER_MONARCH_MESHES",
        "MUSTER_MONARCH_PROCESSES",
        "MUSTER_MONARCH_ADDRESS",
    }
)
# What Monarch's own worker pods run, without its imports of private modules.
BOOTSTRAP = """\
import os, socket
from monarch.actor import run_worker_loop_forever
port = os.environ["MONARCH_PORT"]
address = os.environ.get("MUSTER_MONARCH_ADDRESS") or f"tcp://{socket.getfqdn()}:{port}@tcp://0.0.0.0:{port}"
run_worker_loop_forever(address=address, ca="trust_all_connections")
"""
# An option of Monarch's DDP example, and what it has to be equal to.
_OPTIONS: dict[str, tuple[str, Callable[[JobSpec], str]]] = {
    "num_hosts": ("nodes", lambda spec: str(spec.nodes)),
    "gpus_per_host": ("nproc_per_node", lambda spec: str(spec.nproc_per_node)),
    "mesh_name": ("mesh_name", lambda spec: mesh_name(spec)),
}


def resolve(spec: JobSpec, given: frozenset[str]) -> JobSpec:
    """Give each mesh the nearest name that Monarch allows."""
    options = dict(spec.options)
    if "mesh_name" in options:
        options["mesh_name"] = _allowed(options["mesh_name"])
    if "more_meshes" in options:
        words = (word.partition("=") for word in options["more_meshes"])
        options["more_meshes"] = [f"{_allowed(name)}{equals}{count}" for name, equals, count in words]
    return replace(spec, options=options)


def _allowed(name: str) -> str:
    return re.sub("[-_]", "", name).lower()


def problems(spec: JobSpec) -> list[Problem]:
    found = []
    if spec.min_nodes is not None:
        words = "a Monarch job cannot be elastic: its script waits for every host of a mesh; remove it"
        found.append(Problem("min_nodes", spec.min_nodes, words))
    names = [mesh_name(spec)]
    if not re.fullmatch(MESH_NAME, names[0]):
        words = "is too long; use lowercase letters and digits, at most 24, the first a letter"
        found.append(Problem("mesh_name", names[0], words))
    for word in spec.options.get("more_meshes", ()):
        name, _, count = word.partition("=")
        if not re.fullmatch(MESH_NAME, name) or not count.isdecimal() or not 1 <= int(count[:9]) <= MAX_NODES:
            words = f"must be a name of lowercase letters and digits and a number of hosts from 1 to {MAX_NODES}, such as generators=2"
            found.append(Problem("more_meshes", word, words))
        names.append(name)
    for name in sorted({name for name in names if names.count(name) > 1 or name == CONTROLLER}):
        words = (
            f"{CONTROLLER} is the replica that runs the script" if name == CONTROLLER else "two meshes have this name"
        )
        found.append(Problem("mesh_name" if name == names[0] else "more_meshes", name, f"{words}; choose another name"))
    return found + _differences(spec)


def _differences(spec: JobSpec) -> list[Problem]:
    """Return the options of the command that contradict the job: the script would wait for hosts that never come."""
    found = []
    for option, value in _given(spec.command).items():
        field, ours = _OPTIONS[option]
        if value != ours(spec):
            words = f"the job has {field}={ours(spec)}; change one of the two, or leave --{option} out"
            found.append(Problem("command", f"--{option} {value}", words))
    return found


def _given(command: tuple[str, ...]) -> dict[str, str]:
    words, found = list(command), {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        option = name.lstrip("-").replace("-", "_")
        if name.startswith("--") and option in _OPTIONS and (equals or words):
            found[option] = value if equals else words[0]
    return found


def listens(spec: JobSpec) -> str:
    return "Monarch's hosts listen on every address of their machine and ask for nothing"


def takes_code(spec: JobSpec) -> tuple[str, object] | None:
    """Return why others could run code: whoever reaches a host's port can start actors there."""
    return ("framework", NAME)


def more_ranks(count: int) -> str:
    return f"submit it with nproc_per_node={count}, the processes of each host"


def mesh_name(spec: JobSpec) -> str:
    return str(spec.options.get("mesh_name") or MESH)


def meshes(spec: JobSpec) -> dict[str, int]:
    """Return the number of hosts of each mesh, the first mesh first."""
    more = (word.partition("=") for word in spec.options.get("more_meshes", ()))
    return {mesh_name(spec): spec.nodes, **{name: int(count) for name, _, count in more}}


def roles(spec: JobSpec) -> tuple[Role, ...]:
    """Return one role for each mesh, named like it, and `controller`, whose end is the job's."""
    sizes = meshes(spec)
    variables: dict[str, Value] = {
        "MUSTER_MONARCH_CONTROLLER": Host(CONTROLLER, 0),
        "MUSTER_MONARCH_MESHES": " ".join(f"{name}={count}" for name, count in sizes.items()),
        "MUSTER_MONARCH_PROCESSES": str(spec.nproc_per_node),
        "MONARCH_PORT": Port("monarch", PORT),
    }
    hosts = [
        Role(
            name, count, spec.nproc_per_node, ("python3", "-u", "-c", BOOTSTRAP), variables, completes=False,
            shape=_shapes.of(spec, "host"),
            labels={
                "app.kubernetes.io/name": "monarch-worker",
                "monarch.pytorch.org/mesh-name": name,
                "apps.kubernetes.io/pod-index": Index(),
            },
            exclusive=f"mesh {name}",  # the script's selector knows no job
            operator=OPERATOR if spec.options.get("mesh_launcher") == OPERATOR else "",
        )
        for name, count in sizes.items()
    ]  # fmt: skip
    controller = Role(
        CONTROLLER, 1, 0, spec.command, variables, devices=0, shape=_shapes.of(spec, CONTROLLER), reads_pods=True,
    )  # fmt: skip
    return numbered(*hosts, controller)
