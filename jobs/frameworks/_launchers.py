"""Launchers that start the processes of a job themselves, and what to write instead. Pure.

Each of them would start a separate world in every replica. Their libraries find ranks and addresses in the environment
that torchrun sets, so torchrun is written in their place and the script stays as it is.
"""

import os.path
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import shortened

from . import _wrappers

PYTHON = re.compile(r"^python(3(\.\d+)?)?\Z")
PYTHON_FLAGS = frozenset({"-u", "-B", "-O", "-OO", "-q", "-E", "-s", "-I", "-P", "-b"})  # before a script
_VALUED_PYTHON_FLAGS = frozenset({"-X", "-W"})


@dataclass(frozen=True)
class LauncherProgram:
    """A launcher. `programs` and `modules` start it, followed by `subcommand` if it has one."""

    name: str
    programs: frozenset[str]
    modules: frozenset[str]
    hint: str
    subcommand: str = ""
    direct: frozenset[str] = frozenset()  # programs and modules that are the subcommand itself


_PLACES = "Muster places the replicas and starts one process for each rank; nodes and nproc_per_node say how many"
_LAUNCHERS = (
    LauncherProgram(
        "accelerate launch",
        frozenset({"accelerate"}),
        frozenset({"accelerate", "accelerate.commands.accelerate_cli"}),
        "Accelerate finds ranks and addresses in the environment that torchrun sets; its own options go into env: --cpu is "
        "ACCELERATE_USE_CPU=true, --mixed_precision bf16 is ACCELERATE_MIXED_PRECISION=bf16; those of DeepSpeed and FSDP are "
        "arguments of Accelerator",
        "launch",
        frozenset({"accelerate-launch", "accelerate.commands.launch"}),
    ),
    LauncherProgram(
        "deepspeed",
        frozenset({"deepspeed", "deepspeed.pt"}),
        frozenset({"deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch"}),
        "deepspeed.init_distributed() finds ranks and addresses in the environment that torchrun sets",
    ),
    LauncherProgram(
        "lightning run",
        frozenset({"lightning", "fabric"}),
        frozenset({"lightning", "lightning.fabric.cli", "lightning_fabric.cli"}),
        "Lightning finds ranks and addresses in the environment that torchrun sets; devices and num_nodes of Trainer or Fabric are "
        "nproc_per_node and nodes",
        "run",
    ),
    LauncherProgram("srun", frozenset({"srun"}), frozenset(), _PLACES),
    LauncherProgram("mpirun", frozenset({"mpirun", "mpiexec", "orterun"}), frozenset(), _PLACES),
    LauncherProgram("horovodrun", frozenset({"horovodrun"}), frozenset({"horovod.runner.launch"}), _PLACES),
    LauncherProgram("torchx run", frozenset({"torchx"}), frozenset({"torchx.apps"}), _PLACES, "run"),
)  # fmt: skip


TORCHRUN = "torchrun"
INSTALLED = frozenset({TORCHRUN}).union(*({*one.programs, *one.direct} for one in _LAUNCHERS))


def module_of(command: Sequence[str]) -> tuple[str, int]:
    """Return the module that `python -m` starts and the number of words up to it; "" and 0 for another command."""
    if not command or not PYTHON.match(os.path.basename(command[0])):
        return "", 0
    at = behind_flags(command)
    if len(command) > at and command[at].startswith("-m") and len(command[at]) > len("-m"):
        return command[at][len("-m") :], at + 1
    return (command[at + 1], at + 2) if len(command) > at + 1 and command[at] == "-m" else ("", 0)


def behind_flags(command: Sequence[str]) -> int:
    """Return the index of the first word after Python's own flags."""
    at = 1
    while at < len(command) and (command[at] in PYTHON_FLAGS or command[at][:2] in _VALUED_PYTHON_FLAGS):
        at += 2 if command[at] in _VALUED_PYTHON_FLAGS else 1
    return at


def program_of(command: Sequence[str]) -> tuple[str, int]:
    """Return the name of the program that a command starts, and the number of words up to it; "" and 0 for a module.

    `python /opt/venv/bin/accelerate` starts accelerate: installed programs are scripts.
    """
    if not command or module_of(command)[0]:
        return "", 0
    if not PYTHON.match(os.path.basename(command[0])):
        return os.path.basename(command[0]), 1
    at = behind_flags(command)
    name = os.path.basename(command[at]) if at < len(command) else ""
    return (name, at + 1) if name in INSTALLED else (os.path.basename(command[0]), 1)


def complaint(command: Sequence[str]) -> str:
    """Return what to write instead of a launcher, also behind wrappers such as `uv run` or `sh -c`; "" if there is none.

    The remedy keeps the wrappers.
    """
    found = _found(command, _wrappers.MOST)
    if found is None:
        return ""
    one, instead = found
    return (
        f"{one.name} starts its own processes and does not know the other replicas; write "
        f"{shortened(shlex.join(instead))}: {one.hint}"
    )


def _found(command: Sequence[str], wrappers: int) -> tuple[LauncherProgram, list[str]] | None:
    """Return the launcher that a command starts and the command with torchrun in its place.

    It is looked for behind at most this many wrappers.
    """
    if direct := _direct(command):
        return direct
    if not wrappers:
        return None
    around, inner = _wrappers.behind(command)
    if inner:
        found = _found(inner, wrappers - 1)
        return found and (found[0], [*around, *found[1]])
    shell, assignments, inner = _wrappers.in_shell(command)
    found = _found(inner, wrappers - 1) if inner else None
    return found and (found[0], [*shell, shlex.join([*assignments, *found[1]])])


def _direct(command: Sequence[str]) -> tuple[LauncherProgram, list[str]] | None:
    module, words = module_of(command)
    program, until = program_of(command)
    rest = list(command[words or until :])
    for one in _LAUNCHERS:
        is_direct = module in one.direct or program in one.direct
        is_named = module in one.modules or program in one.programs
        if is_direct or (is_named and (not one.subcommand or rest[:1] == [one.subcommand])):
            return one, _instead(rest)
    return None


def _instead(rest: Sequence[str]) -> list[str]:
    """Return torchrun with the script and its arguments, without the launcher's own flags."""
    for at, word in enumerate(rest):
        if word in ("-m", "--module") and at + 1 < len(rest):
            return ["torchrun", "-m", *rest[at + 1 :]]
        if word.endswith(".py") and not word.startswith("-"):
            return ["torchrun", *rest[at:]]
    return ["torchrun", "train.py"]
