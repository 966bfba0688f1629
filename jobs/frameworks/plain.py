"""plain: one command in each replica, without a launcher; optionally a second command in replicas of its own. Pure.

Each replica's command is one rank. Where the workers find each other is in the variables that PyTorch's `env://`
(torch/distributed/rendezvous.py) and `jax.distributed.initialize` (jax/_src/distributed.py, clusters/) are used with.
Helpers, such as a data service, an evaluator or a parameter server, run as long as the workers do.
"""

from dataclasses import replace

from common.errors import Problem
from jobs.core.fields import MAX_NODES, MAX_PROCESSES_PER_NODE, Field, Type, quantity, whole
from jobs.core.plan import Endpoint, FirstRank, Host, Index, Port, Role, Value, numbered
from jobs.core.spec import JobSpec

from . import _shapes

NAME = "plain"
LABEL = "a plain job"
PER_NODE = "Devices per node"
STOPPING = "Each replica gets SIGTERM, and the grace period to save a checkpoint."
KEY_ENV = ""
PORT = 29500
FIELDS = (
    _shapes.DISTRIBUTED,
    Field("helper_command", Type.LIST, "Helper command", "a second command, in replicas of its own, which end with the workers",
          remedy="give a list of words such as python serve_data.py"),
    whole("helpers", "Helpers", "number of replicas that run helper_command",
          least=1, most=MAX_NODES, remedy="omit helpers and helper_command for workers alone", default=None),
    whole("helper_devices", "Devices of a helper", "slots of the queue that each helper takes, on a GPU queue its GPUs",
          least=0, most=MAX_PROCESSES_PER_NODE, remedy="use 0 for helpers on the CPU"),
    quantity("helper_cpu", "CPU of a helper", "CPU of each helper's pod in place of the cluster's", example="2 or 500m"),
    quantity("helper_memory", "Memory of a helper", "memory of each helper's pod in place of the cluster's", example="8Gi"),
)  # fmt: skip
RESERVED_ENV = frozenset(
    {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID", "HELPER_INDEX", "HELPER_COUNT",
    }
)  # fmt: skip


def resolve(spec: JobSpec, given: frozenset[str]) -> JobSpec:
    """Write down that a single process is not distributed: jobs from before this was a choice are, and stay so."""
    if _has_others(spec):
        return spec
    return replace(spec, options={_shapes.DISTRIBUTED.name: 0, **spec.options})


def _has_others(spec: JobSpec) -> bool:
    """Whether the job has more than one process."""
    return spec.nodes > 1 or "helper_command" in spec.options


def problems(spec: JobSpec) -> list[Problem]:
    found = []
    if spec.min_nodes is not None:
        words = "a plain job cannot be elastic: nothing would tell its ranks of a change; remove it, or use torchrun"
        found.append(Problem("min_nodes", spec.min_nodes, words))
    theirs = sorted(name for name in spec.options if name.startswith("helper") and name != "helper_command")
    if theirs and "helper_command" not in spec.options:
        words = "needs helper_command, what the helpers run; add it, or remove this field"
        found += [Problem(name, spec.options[name], words) for name in theirs]
    return found


def listens(spec: JobSpec) -> str:
    """Return nothing: which ports are open is up to the command."""
    return ""


def takes_code(spec: JobSpec) -> tuple[str, object] | None:
    return None


def more_ranks(count: int) -> str:
    return f"submit it with framework=torchrun and nproc_per_node={count}, which shows each rank by itself"


def roles(spec: JobSpec) -> tuple[Role, ...]:
    """Return `worker`, whose success is the job's, and `helper` where there is a second command."""
    meeting = Endpoint(Host("worker", 0), Port("rendezvous", PORT))
    is_distributed = _has_others(spec) or spec.options.get(_shapes.DISTRIBUTED.name, 1) == 1
    env_of_torch: dict[str, Value] = {
        "RANK": FirstRank(), "LOCAL_RANK": "0", "WORLD_SIZE": str(spec.nodes), "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": meeting.host, "MASTER_PORT": meeting.port,
    }  # fmt: skip
    env: dict[str, Value] = {
        **(env_of_torch if is_distributed else {}),
        "JAX_COORDINATOR_ADDRESS": meeting, "JAX_NUM_PROCESSES": str(spec.nodes), "JAX_PROCESS_ID": FirstRank(),
        # As scripts for Kubeflow's trainer read them.
        "COORDINATOR_ADDRESS": meeting, "NUM_PROCESSES": str(spec.nodes), "PROCESS_ID": FirstRank(),
    }  # fmt: skip
    worker = Role("worker", spec.nodes, 1, spec.command, env, is_rank=True, devices=spec.nproc_per_node)
    if "helper_command" not in spec.options:
        return numbered(worker)
    count = spec.options.get("helpers", 1)
    theirs: dict[str, Value] = {
        "HELPER_INDEX": Index(), "HELPER_COUNT": str(count), "WORLD_SIZE": str(spec.nodes),
        "MASTER_ADDR": meeting.host, "MASTER_PORT": meeting.port,
    }  # fmt: skip
    helper = Role(
        "helper", count, 1, tuple(spec.options["helper_command"]), theirs, completes=False, is_rank=True,
        devices=spec.options.get("helper_devices", 0),
        shape=_shapes.of(spec, "helper"),
    )  # fmt: skip
    return numbered(worker, helper)
