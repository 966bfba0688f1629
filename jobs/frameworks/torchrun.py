"""torchrun: workers, with a static rendezvous or, for an elastic job, a c10d one; optionally a master of its own. Pure.

The spec becomes torchrun's PET_* variables (torch/distributed/argparse_util.py reads them as defaults of its flags), so
the command stays the one a user would type on one machine.
"""

import os.path
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.errors import InvalidSpec, Problem
from jobs.core.fields import MAX_PROCESSES_PER_NODE, quantity, whole
from jobs.core.plan import Endpoint, First, Here, Host, Index, Launch, Port, Role, Value, numbered
from jobs.core.spec import JobSpec

from . import _launchers, _shapes

NAME = "torchrun"
LABEL = "torchrun"
PER_NODE = "Processes per node"
STOPPING = "Each rank gets SIGTERM, and the grace period to save a checkpoint."
KEY_ENV = ""
MASTER, WORKER = "master", "worker"
_OF_MASTER = (
    whole("master_processes", "Processes of the master", "processes of the master, if their number differs from a worker's",
          least=1, most=MAX_PROCESSES_PER_NODE, remedy="omit it for as many as nproc_per_node says", default=None),
    quantity("master_cpu", "CPU of the master", "CPU of the master's pod in place of the cluster's", example="4 or 500m"),
    quantity("master_memory", "Memory of the master", "memory of the master's pod in place of the cluster's", example="16Gi"),
)  # fmt: skip
FIELDS = (*_OF_MASTER, *_shapes.WORKER, _shapes.DISTRIBUTED)
RENDEZVOUS_HOST = 0  # the replica with the store of the rendezvous; in a role of its own if there is a master
NO_PYTHON = "MUSTER_NO_PYTHON"  # agent/ranks/shim.py: a rank's command is a program, not a script of Python
RDZV_PORT = 29500  # torchrun's static rendezvous default, and its c10d one (PyTorch docs, elastic/run)
# For an elastic job whose command sets no value: a lost replica fails the other replicas' ranks, and so costs each a
# restart.
ELASTIC_RESTARTS = 3  # as in torchrun's own example of an elastic job (torch/distributed/run.py)
RESERVED_ENV = frozenset(
    {
        "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "PYTHON_EXEC", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
        "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_MAX_RESTARTS",
    }
)  # fmt: skip
_ELASTIC_ENV = {
    "PET_RDZV_CONF",
    "PET_LOCAL_ADDR",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
}  # also reserved if the job is elastic

# Flags for the rendezvous: Muster knows the addresses, the user cannot.
_OWNED_FLAGS = {"node_rank", "master_addr", "master_port", "rdzv_endpoint", "rdzv_id", "rdzv_backend", "rdzv_conf"}
# Flags of torchrun without a value (torch/distributed/run.py, get_args_parser).
_BARE_FLAGS = {"standalone", "no_python", "run_path", "m", "module", "help", "h", "v", "virtual_local_rank", "use_env"}
_MIN_MAX = re.compile(r"^([1-9][0-9]{0,6}):([1-9][0-9]{0,6})\Z")  # --nnodes of an elastic job
_ASSIGNED = re.compile(r"PET_(STANDALONE|NNODES|RDZV_BACKEND)=([^\s;&|)]*)[;&|)]?\Z")  # as a shell or env(1) takes it
_MOST_SHELLS = 3  # levels of nesting
_STARTS_TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")
_ANY_PYTHON = ("python", "python3")  # whichever has torchrun beside it
_PASSED_BY_TORCHRUN = ("-u", "-q")
_THIS_NODE = ("", "localhost", "127.0.0.1", "::1")
# torch.distributed.launch is an older name of the same program: it reads the same variables
# (torch/distributed/launch.py).
_MODULES = {"torch.distributed.run", "torch.distributed.launch"}


@dataclass(frozen=True)
class Command:
    """A parsed torchrun command: its flags with values as text, and the script with its arguments."""

    flags: dict[str, str]
    script: tuple[str, ...]


def is_torchrun(command: Sequence[str]) -> bool:
    return _launcher_words(command) > 0


def parse(command: Sequence[str]) -> Command | None:
    """Return the flags and script of a torchrun command; None if the command starts something else."""
    start = _launcher_words(command)
    if not start:
        return None
    flags, at = _flags(command, start)
    return Command(flags, tuple(command[at:]))


def _flags(words: Sequence[str], at: int) -> tuple[dict[str, str], int]:
    """Return torchrun's own flags from word `at` on, and the script's index."""
    flags: dict[str, str] = {}
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at].lstrip("-").partition("=")
        name, at = name.replace("-", "_"), at + 1
        if not equals and name not in _BARE_FLAGS:
            value, at = words[at] if at < len(words) else "", at + 1
        flags[name] = value
    return flags, at


def wrap(command: Sequence[str]) -> tuple[str, ...]:
    """Turn a bare `python X` into `torchrun X`; everything else stays as it is, above all a launcher.

    An interpreter that is named by its path or version, or started with flags, runs torchrun itself:
    `.venv/bin/python -O X` becomes `.venv/bin/python -O -m torch.distributed.run X`.
    """
    if not _is_python(command) or _launchers.complaint(command):
        return tuple(command)
    at = _launchers.behind_flags(command)
    flags, words = [flag for flag in command[1:at] if flag not in _PASSED_BY_TORCHRUN], list(command[at:])
    if words and words[0].startswith("-m") and words[0] != "-m":
        words[:1] = ["-m", words[0].removeprefix("-m")]
    if not words or (words[0].startswith("-") and words[0] != "-m"):
        return tuple(command)
    if command[0] in _ANY_PYTHON and not flags:
        return ("torchrun", *words)
    return (command[0], *flags, "-m", "torch.distributed.run", *words)


def is_alone(spec: JobSpec) -> bool:
    """Whether Python itself is started, without torchrun: one process, which meets nobody and has no RANK."""
    return (
        spec.nodes == spec.nproc_per_node == 1
        and spec.min_nodes is None
        and not spec.options.get(_shapes.DISTRIBUTED.name)
        and _is_python(spec.command)
    )


def _is_python(command: Sequence[str]) -> bool:
    """Whether a command starts Python with something else than torchrun."""
    return _launchers.PYTHON.match(os.path.basename(command[0])) is not None and not is_torchrun(command)


def without_local_rendezvous(command: Sequence[str], *, nodes: int) -> tuple[str, ...]:
    """Leave out flags that say what is so anyway: a rendezvous of one node with itself, and as many ranks as devices."""
    start = _launcher_words(command)
    kept, at = list(command[:start]), start
    while start and at < len(command) and command[at].startswith("-") and command[at] != "--":
        flags, after = _flags(command[at : at + 2], 0)
        ((name, value),) = list(flags.items())[:1]
        width = 1 if "=" in command[at] or name in _BARE_FLAGS else min(after, 2)
        if not _is_idle(name, value, nodes=nodes):
            kept += command[at : at + width]
        at += width
    return (*kept, *command[at:])


def _is_idle(name: str, value: str, *, nodes: int) -> bool:
    if name == "nproc_per_node":
        return value in ("gpu", "auto", "cpu")
    if nodes != 1:
        return False
    host = value.rpartition(":")[0] if name == "rdzv_endpoint" and ":" in value else value
    return (
        (name in ("rdzv_endpoint", "master_addr") and host.strip("[]") in _THIS_NODE)
        or (name == "rdzv_backend" and value in ("c10d", "static"))
        or (name == "node_rank" and value == "0")
        or name in ("rdzv_id", "master_port")
    )


def resolve(spec: JobSpec, given: frozenset[str]) -> JobSpec:
    """Fill in counts from the command's flags if the spec leaves them open."""
    if "gpus" in given and (own := spec.options.get("master_processes")):
        words = f"is split evenly over all nodes, but master_processes is {own}; give nodes and nproc_per_node instead"
        raise InvalidSpec(Problem("gpus", spec.nodes * spec.nproc_per_node, words))
    launch = parse(spec.command)
    found = {name: count for name, count in _counts(launch.flags if launch else {}).items() if name not in given}
    spec = replace(spec, **found)  # type: ignore[arg-type]  # all are counts
    if is_alone(spec):
        return spec
    command = wrap(spec.command)
    if spec.min_nodes is None:
        command = without_local_rendezvous(command, nodes=spec.nodes)
    return replace(spec, command=command)


def _counts(flags: Mapping[str, str]) -> dict[str, int]:
    """Return fields with counts given as flags; malformed counts are left to `problems`."""
    found = {}
    for flag, field in (("nnodes", "nodes"), ("nproc_per_node", "nproc_per_node")):
        value = flags.get(flag, "")
        if value.isdecimal() and int(value) > 0:
            found[field] = int(value)
    if elastic := _MIN_MAX.match(flags.get("nnodes", "")):
        found["min_nodes"], found["nodes"] = int(elastic[1]), int(elastic[2])
    return found


def problems(spec: JobSpec) -> list[Problem]:
    if words := _launchers.complaint(spec.command):
        return [Problem("command", " ".join(spec.command), words)]
    if _is_python(spec.command) and not is_alone(spec):
        return [
            Problem("command", " ".join(spec.command), "torchrun starts a script or a module; write the code to a file")
        ]
    launch = parse(spec.command)
    found = _elastic_problems(spec) + _master_problems(spec)
    if launch is None:
        return found
    owned = _OWNED_FLAGS if spec.min_nodes is None else {*_OWNED_FLAGS, "local_addr"}
    found += [
        Problem(
            "command",
            f"--{flag.replace('_', '-')}={launch.flags[flag]}",
            f"--{flag.replace('_', '-')}: {_instead(flag, launch.flags[flag])}",
        )
        for flag in sorted(owned & set(launch.flags))
    ]
    found += _contradictions(spec, launch)
    if "standalone" in launch.flags and spec.nodes > 1:
        found.append(
            Problem("command", "--standalone", f"means one replica, but nodes is {spec.nodes}; remove one of them")
        )
    if not launch.script:
        found.append(Problem("command", " ".join(spec.command), "names no script; add it after the flags"))
    return found


def _instead(flag: str, value: str) -> str:
    """Return what to do about a flag of the rendezvous. etcd 3.6 has no API of version 2, and torch speaks no other."""
    if flag == "rdzv_backend" and value in ("etcd", "etcd-v2"):
        return "no etcd is needed: remove the flag for a static rendezvous, or set min_nodes for an elastic one (c10d)"
    return "Muster sets the rendezvous; remove the flag"


def _elastic_problems(spec: JobSpec) -> list[Problem]:
    if spec.min_nodes is None:
        return []
    found = [
        Problem(f"env.{name}", spec.env[name], f"is set by {LABEL} itself in an elastic job; choose another name")
        for name in sorted(_ELASTIC_ENV & set(spec.env))
    ]
    if spec.min_nodes > spec.nodes:
        words = f"is more than nodes={spec.nodes}, the maximum; lower it, or raise nodes"
        found.append(Problem("min_nodes", spec.min_nodes, words))
    return found


def _has_master(spec: JobSpec) -> bool:
    """Whether the first replica is a role of its own: any field of the master makes it one."""
    return any(field.name in spec.options for field in _OF_MASTER)


def _master_problems(spec: JobSpec) -> list[Problem]:
    if spec.min_nodes is not None:
        words = "an elastic job has no master of its own: its replicas are alike; remove this field, or min_nodes"
    elif spec.nodes == 1:
        words = "describes a master beside workers, but nodes is 1; raise nodes, or use {instead}"
    else:
        return []
    instead = {"master_processes": "nproc_per_node", "master_cpu": "worker_cpu", "master_memory": "worker_memory"}
    given = [field.name for field in _OF_MASTER if field.name in spec.options]
    return [Problem(name, spec.options[name], words.format(instead=instead[name])) for name in given]


def _contradictions(spec: JobSpec, launch: Command) -> list[Problem]:
    nodes = str(spec.nodes) if spec.min_nodes is None else f"{spec.min_nodes}:{spec.nodes}"
    asked = f"nodes={spec.nodes}" if spec.min_nodes is None else f"min_nodes={spec.min_nodes} and nodes={spec.nodes}"
    found = []
    for flag, wanted, field in (
        ("nnodes", nodes, asked),
        ("nproc_per_node", str(spec.nproc_per_node), f"nproc_per_node={spec.nproc_per_node}"),
    ):
        value = launch.flags.get(flag)
        if value is not None and value != wanted:
            written = f"--{flag.replace('_', '-')}={value}"
            words = f"{written} contradicts {field}; remove the flag, or make both the same"
            found.append(Problem("command", written, words))
    value, masters = launch.flags.get("nproc_per_node"), spec.options.get("master_processes", spec.nproc_per_node)
    if value is not None and masters != spec.nproc_per_node:
        written = f"--nproc-per-node={value}"
        words = f"{written} applies to the master too, which has master_processes={masters}; remove the flag"
        found.append(Problem("command", written, words))
    return found


def listens(spec: JobSpec) -> str:
    """Return which ports it opens to others, in words; empty if none.

    torch's TCPStore listens on every address, whatever MASTER_ADDR is.
    """
    if takes_code(spec) is None:
        if not is_torchrun(spec.command):
            return ""
        return (
            "torchrun's store listens on one port on every address of its machine without authentication: anyone who can reach it can "
            "change what the ranks exchange through it"
        )
    return (
        "torchrun's stores listen on every address of their machine without authentication: anyone who can reach them can run code in this "
        "job, because its rendezvous (c10d) reads pickles from them"
    )


def takes_code(spec: JobSpec) -> tuple[str, object] | None:
    """Return what makes the job use a c10d rendezvous, which unpickles what it finds in its store.

    A shell may start it, too, so a shell's words are searched.
    """
    if spec.min_nodes is not None:
        return "min_nodes", spec.min_nodes
    if found := _assigned(
        "STANDALONE", spec.env.get("PET_STANDALONE", "1" if "PET_STANDALONE" in spec.secrets else "")
    ):
        return "env.PET_STANDALONE", found
    launch = parse(spec.command)
    part = _by_flags(launch.flags) if launch else _in_words(spec.command, _MOST_SHELLS)
    return ("command", part) if part else None


def _in_words(words: Sequence[str], shells: int) -> str:
    """Return the part of a command that makes a torchrun in it use a c10d rendezvous; empty if there is none."""
    if not any(_STARTS_TORCHRUN.search(word) for word in words):
        return ""
    for at, word in enumerate(words):
        assigned = _ASSIGNED.match(word)
        if assigned and _assigned(assigned[1], assigned[2]):
            return assigned[0].rstrip(";&|)")
        is_module = word.removeprefix("-m") in _MODULES and (word.startswith("-m") or (at and words[at - 1] == "-m"))
        is_start = os.path.basename(word) == _launchers.TORCHRUN or is_module
        if is_start and (part := _by_flags(_flags(words, at + 1)[0])):
            return part
        inner = _split(word) if shells and _STARTS_TORCHRUN.search(word) else []
        if len(inner) > 1 and (part := _in_words(inner, shells - 1)):
            return part
    return ""


def _split(text: str) -> list[str]:
    """Split like a shell, with operators as separate words."""
    text = text.replace("\\\r\n", "").replace("\\\n", "")
    found = shlex.shlex(text, posix=True, punctuation_chars=True)
    found.whitespace_split, found.commenters = True, ""
    try:
        return list(found)
    except ValueError:  # a shell may understand more
        return text.split()


def _by_flags(flags: Mapping[str, str]) -> str:
    """Return the flag that selects c10d. argparse accepts unambiguous prefixes of names (torch/distributed/run.py)."""
    for name, value in flags.items():
        if len(name) > len("sta") and "standalone".startswith(name):  # it means c10d, too
            return f"--{name}"
        if len(name) > 1 and "nnodes".startswith(name) and _assigned("NNODES", value):
            return f"--{name}={value}"
        if len(name) > len("rdzv_") and "rdzv_backend".startswith(name) and _assigned("RDZV_BACKEND", value):
            return f"--{name.replace('_', '-')}={value}"
    return ""


def _assigned(name: str, value: str) -> str:
    """Return the value if it selects a c10d rendezvous."""
    if name == "NNODES":
        counts = _MIN_MAX.match(value)
        return value if (counts and counts[1] != counts[2]) or (":" in value and "$" in value) else ""
    return "" if value in ("", "0" if name == "STANDALONE" else "static") else value


def more_ranks(count: int) -> str:
    return f"set nproc_per_node to {count}"


def roles(spec: JobSpec) -> tuple[Role, ...]:
    """Return `worker`; in front of it `master`, node rank 0, where that has fields of its own.

    Both complete: torchrun's first node itself waits for the others at its end (`exit_barrier_timeout`, 300 s), and a
    worker that takes longer is still saving something.
    """
    shape = _shapes.of(spec, WORKER)
    if is_alone(spec):
        return numbered(Role(WORKER, 1, 1, spec.command, is_rank=True, shape=shape))
    spec, programs = _of_programs(spec)
    if not _has_master(spec):
        env = (_static(spec, WORKER) if spec.min_nodes is None else _elastic(spec)) | programs
        anchor = None if spec.min_nodes is None else RENDEZVOUS_HOST
        return numbered(
            Role(WORKER, spec.nodes, spec.nproc_per_node, spec.command, env, least=spec.min_nodes, anchor=anchor, shape=shape)
        )  # fmt: skip
    env = _static(spec, MASTER) | programs
    # torchrun accepts another number on each node (torch/distributed/elastic/agent/server/api.py, _assign_worker_ranks).
    processes = spec.options.get("master_processes", spec.nproc_per_node)
    master = Role(
        MASTER, 1, processes, spec.command, {**env, "PET_NPROC_PER_NODE": str(processes)},
        shape=_shapes.of(spec, MASTER),
    )  # fmt: skip
    env = {**env, "PET_NODE_RANK": Index(1)}
    worker = Role(WORKER, spec.nodes - 1, spec.nproc_per_node, spec.command, env, shape=shape)
    return numbered(master, worker)


def _of_programs(spec: JobSpec) -> tuple[JobSpec, dict[str, Value]]:
    """Take `--no-python` out of a command and tell the agent, through which ranks are started: so each is seen by itself."""
    launch = parse(spec.command)
    if launch is None or "no_python" not in launch.flags:
        return spec, {}
    at = len(spec.command) - len(launch.script)
    kept = [word for word in spec.command[:at] if word.lstrip("-").replace("_", "-") != "no-python"]
    return replace(spec, command=(*kept, *launch.script)), {NO_PYTHON: "1"}


def _static(spec: JobSpec, first: str) -> dict[str, Value]:
    """Return the variables of a static rendezvous, which the first replica of the role `first` hosts."""
    return {
        "PET_NPROC_PER_NODE": str(spec.nproc_per_node),
        "PET_NNODES": str(spec.nodes),
        "PET_NODE_RANK": Index(),
        "PET_MASTER_ADDR": Host(first, RENDEZVOUS_HOST),
        "PET_MASTER_PORT": Port("rendezvous", RDZV_PORT),
        "PET_MAX_RESTARTS": "0",  # a static rendezvous cannot take one replica back: a retry is a new attempt
    }


def _elastic(spec: JobSpec) -> dict[str, Value]:
    """Return the variables of a c10d rendezvous, which is repeated whenever a replica is lost or added.

    The first replica hosts it: its store is the only thing the replicas share. The host is set explicitly and not
    guessed: on one machine every replica would find that the address is its own.
    """
    patience = f"read_timeout={max(60, spec.start_timeout_seconds)}"  # the host may be the last one to come up
    return {
        "PET_NPROC_PER_NODE": str(spec.nproc_per_node),
        "PET_NNODES": f"{spec.min_nodes}:{spec.nodes}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": Endpoint(Host(WORKER, RENDEZVOUS_HOST), Port("rendezvous", RDZV_PORT)),
        "PET_RDZV_ID": Launch(),
        "PET_RDZV_CONF": First(f"is_host=true,{patience}", f"is_host=false,{patience}"),
        "PET_LOCAL_ADDR": Here(),
        # If the store is shared, a launcher that keeps rank 0 through a change of members never announces it again, and
        # new members wait for it until the timeout (torch 2.15, DynamicRendezvousHandler.next_rendezvous).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_MAX_RESTARTS": str(ELASTIC_RESTARTS),
    }


def _launcher_words(command: Sequence[str]) -> int:
    """Return how many leading words start torchrun: `torchrun` is 1, `python -m torch.distributed.run` is 3, else 0."""
    program, words = _launchers.program_of(command)
    if program == _launchers.TORCHRUN:
        return words
    module, words = _launchers.module_of(command)
    return words if module in _MODULES else 0
