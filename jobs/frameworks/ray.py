"""Ray: a cluster of its own for each job. The head runs the user's command, the driver; workers join it. Pure.

The command stays what a user would type on one machine: `ray.init()`, with or without `address="auto"`, finds the job's
cluster by RAY_ADDRESS (ray/_private/worker.py). How a replica becomes a node of it is in `agent/frameworks/ray.py`.
"""

from common.errors import Problem
from jobs.core.fields import MAX_PROCESSES_PER_NODE, quantity, whole
from jobs.core.plan import Endpoint, Host, Port, Role, Value, numbered
from jobs.core.spec import JobSpec

from . import _shapes

NAME = "ray"
LABEL = "Ray"
PER_NODE = "Devices of a worker"
STOPPING = "The driver gets SIGTERM, and its cluster stays up until the driver has ended or the grace period is over."
KEY_ENV = "RAY_AUTH_TOKEN"  # Ray 2.52 and later; older ones ignore it
PORT = 6379  # Ray's default for the head's store, the GCS
FIELDS = (
    whole("head_devices", "Devices of the head", "slots of the queue that the head takes, on a GPU queue its GPUs",
          least=0, most=MAX_PROCESSES_PER_NODE, remedy="use 0 for a head on the CPU"),
    quantity("head_cpu", "CPU of the head", "CPU of the head's pod in place of the cluster's", example="4 or 500m"),
    quantity("head_memory", "Memory of the head", "memory of the head's pod in place of the cluster's", example="16Gi"),
    *_shapes.WORKER,
)  # fmt: skip
RESERVED_ENV = frozenset(
    {
        "RAY_ADDRESS",
        "RAY_AUTH_MODE",
        KEY_ENV,
        "RAY_TMPDIR",
        "MUSTER_RAY_CPUS",
        "MUSTER_RAY_NODES",
        "MUSTER_RAY_MOST_NODES",
    }
)


def resolve(spec: JobSpec, given: frozenset[str]) -> JobSpec:
    return spec


def problems(spec: JobSpec) -> list[Problem]:
    if spec.min_nodes is not None and spec.min_nodes > spec.nodes:
        words = f"is more than nodes={spec.nodes}, the most workers; lower it, or raise nodes"
        return [Problem("min_nodes", spec.min_nodes, words)]
    return []


def listens(spec: JobSpec) -> str:
    """Return which ports it opens to others, in words. Every request to them has to bring the attempt's own token."""
    return (
        "Ray's processes listen on every address of their machine and ask for the job's own token (Ray 2.52 or later; "
        "older ones ask for nothing)"
    )


def takes_code(spec: JobSpec) -> tuple[str, object] | None:
    """Return None: who has no token is refused."""
    return None


def more_ranks(count: int) -> str:
    return f"start no more than {count} processes with a RANK in each worker"


def roles(spec: JobSpec) -> tuple[Role, ...]:
    """Return `head`, whose driver's end is the job's, and `worker`. Neither has planned ranks: Ray places those itself."""
    head: dict[str, Value] = {
        **_everywhere(),
        "MUSTER_RAY_MOST_NODES": str(spec.nodes),
        "MUSTER_RAY_CPUS": "0",  # tasks run on workers, which are what the job was given
        "MUSTER_RAY_NODES": str(spec.nodes if spec.min_nodes is None else spec.min_nodes),
    }
    driver = Role(
        "head", 1, 0, spec.command, head, devices=spec.options.get("head_devices", 0),
        shape=_shapes.of(spec, "head"),
    )  # fmt: skip
    worker = Role(
        "worker", spec.nodes, 0, ("ray", "start", "--address=$RAY_ADDRESS", "--block"),
        {**_everywhere(), "MUSTER_RAY_CPUS": str(spec.nproc_per_node)}, completes=False, least=spec.min_nodes,
        devices=spec.nproc_per_node, shape=_shapes.of(spec, "worker"),
    )  # fmt: skip
    return numbered(driver, worker)


def _everywhere() -> dict[str, Value]:
    return {
        "RAY_ADDRESS": Endpoint(Host("head", 0), Port("gcs", PORT)),
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_LOG_TO_DRIVER": "0",  # each line once: workers' lines are read where they are written
    }
