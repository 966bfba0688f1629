"""Turn a plan into a local agent's configuration: argv, environment, ports. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.core.plan import Endpoint, First, FirstRank, Here, Host, Index, Launch, Plan, Port, Role, Value

LOOPBACK = "127.0.0.1"
# Collectives choose a network interface by themselves and may pick one that a firewall closes.
LOOPBACK_ENV = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
# What a local job inherits from the server's environment. An allow-list: the shell that started the server holds
# credentials under names that cannot be enumerated. docs/security.md, "Local clusters".
INHERITED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH",
        "SSL_CERT_FILE", "SSL_CERT_DIR",
    }
)  # fmt: skip
INHERITED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "TORCH_", "PYTORCH_",
)  # fmt: skip
# Words of a name that the prefixes above do not cover: NVIDIA_API_KEY is a password, NCCL_IB_PKEY is none.
_SECRET_WORDS = frozenset({"KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"})
# Never inherited, whatever the operator names: they are the server's own, and would be taken for the job's.
_OWN_PREFIXES = ("MUSTER_", "DJANGO_", "CELERY_", "PG")
_OWN = frozenset({"DATABASE_URL", "DATABASE_URL_FILE", "REDIS_URL", "REDIS_URL_FILE", "PYTHONPATH", "VIRTUAL_ENV"})


def ports_needed(plan: Plan) -> dict[str, tuple[str, int]]:
    """Return each port name's listening replica: the first of the role named in a Host, else of the first role."""
    values = [part for role in plan.roles for value in role.env.values() for part in _parts(value)]
    hosts = {(value.role, value.index) for value in values if isinstance(value, Host)}
    home = min(hosts) if hosts else (plan.roles[0].name, 0)
    return {value.name: home for value in values if isinstance(value, Port)}


def _parts(value: Value) -> tuple[Value, ...]:
    return (value.host, value.port) if isinstance(value, Endpoint) else (value,)


def describe(
    plan: Plan,
    role: Role,
    index: int,
    *,
    ports: Mapping[str, int],
    control_file: str,
    volumes: Mapping[str, str] | None = None,
    secrets_folder: str = "",
    start_folder: str = "",
) -> dict[str, Any]:
    """Return one replica's `replica.json` (docs/wire.md, section 1). `volumes` maps names to their folders.

    `start_folder` has the checkpoints of the job that it begins from. `secrets_folder`: where the agent writes the files of the team's secrets, each secret in a folder of its name.
    """
    env = {name: resolve(value, plan, role, index=index, ports=ports) for name, value in role.env.items()}
    env |= {volume_variable(name): folder for name, folder in (volumes or {}).items()}
    env |= start_variables(plan, start_folder)
    env |= {secret_variable(name): f"{secrets_folder}/{name}" for name in plan.secret_files}
    held = [ports[name] for name, home in ports_needed(plan).items() if home == (role.name, index)]
    return {
        "run": plan.run,
        "attempt": plan.attempt,
        "role": role.name,
        "index": index,
        "framework": plan.framework,
        "processes": role.processes,
        "first_rank": role.first_rank,
        "is_rank": role.is_rank,
        "command": list(role.command),
        "working_dir": role.shape.working_dir,
        "env": {**LOOPBACK_ENV, **plan.env, **env},
        "secret_files": {
            f"{secrets_folder}/{name}/{file}": text
            for name, one in plan.secret_files.items()
            for file, text in one.files.items()
        },
        "hold_port": held[0] if held else None,
        "grace_seconds": plan.grace_seconds,
        "start_timeout_seconds": plan.start_timeout_seconds,
        "shared": plan.shared_folder,
        "mark": mark(plan.run, plan.attempt),
        "is_elastic": role.least is not None,
        "incarnation": plan.incarnation(role.name, index),
        "control": {"file": control_file},
        "wants_workspace": True,
        "keeps_folder": True,
        "mirror": False,
    }


def resolve(value: Value, plan: Plan, role: Role, *, index: int, ports: Mapping[str, int]) -> str:
    match value:
        case Index(first):
            return str(first + index)
        case FirstRank():
            return str(role.first_rank + index * role.processes)
        case Host() | Here():
            return LOOPBACK
        case Port(name=name):
            return str(ports[name])
        case Endpoint(port=port):
            return f"{LOOPBACK}:{ports[port.name]}"
        case Launch():
            return mark(plan.run, plan.attempt)
        case First(first=first, rest=rest):
            return rest if index else first
        case _:
            return value


def place_name(role: str, index: int, incarnation: int = 0) -> str:
    """Return a replica's folder name, also MUSTER_REPLICA of its processes."""
    return f"{role}-{index}.{incarnation}" if incarnation else f"{role}-{index}"


def incarnation_of(name: str) -> tuple[str, int]:
    """Split a replica's name from the incarnation behind it: "worker-1.2" is ("worker-1", 2)."""
    plain, dot, number = name.partition(".")
    return (plain, int(number)) if dot and number.isdecimal() else (name, 0)


def volume_variable(name: str) -> str:
    """Return the variable with a volume's path: MUSTER_VOLUME_DATA_SETS for `data-sets`."""
    return "MUSTER_VOLUME_" + name.upper().replace("-", "_")


def secret_variable(name: str) -> str:
    """Return the variable with the folder of a secret's files: MUSTER_SECRET_CLOUD_KEY for `cloud-key`."""
    return "MUSTER_SECRET_" + name.upper().replace("-", "_")


def start_variables(plan: Plan, folder: str) -> dict[str, str]:
    """Return the variables that say where the checkpoints of an earlier job are, and which to begin from."""
    if plan.start_from is None:
        return {}
    step = plan.start_from.step
    return {"MUSTER_FROM": folder, **({} if step is None else {"MUSTER_FROM_STEP": str(step)})}


def mark(run: str, attempt: int) -> str:
    """Return the value that every process of an attempt carries in its environment; strays are found by it."""
    return f"{run}-{attempt}"


def child_env(environ: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a local agent and its job.

    `more` are names, or prefixes with `*` behind them (MUSTER_JOB_ENV).
    """
    names = {*INHERITED, *(one for one in more if not one.endswith("*"))}
    prefixes = tuple(one[:-1] for one in more if one.endswith("*"))
    return {
        name: value
        for name, value in environ.items()
        if (name in names or name.startswith(prefixes) or _is_usual(name))
        and name not in _OWN
        and not name.startswith(_OWN_PREFIXES)
    }


def _is_usual(name: str) -> bool:
    """Return whether jobs get a variable by its prefix alone."""
    return name.startswith(INHERITED_PREFIXES) and _SECRET_WORDS.isdisjoint(name.upper().split("_"))
