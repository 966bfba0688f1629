"""The options that describe a job, shared by `muster submit` and `muster plan`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Callable, TypeVar

import click

from muster.client import Client
from muster.commands.durations import seconds_of
from muster.commands.env_file import read_env
from muster.commands.job_file import FIELDS, job_value, merged, read_job
from muster.commands.secrets import names_only
from muster.commands.session import queue_names
from muster.errors import JobFileError, NotFound

F = TypeVar("F", bound=Callable[..., Any])

COUNT = click.IntRange(min=1)
COUNT_OR_NONE = click.IntRange(min=0)


def _env(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter(f"{name!r} is not KEY=VALUE", ctx, param)
    return {name: value for name, _, value in pairs}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else seconds_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _start(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Parse JOB or JOB@STEP."""
    if value is None:
        return None
    job, at, step = value.partition("@")
    if not job.isdecimal() or (at and not step.isdecimal()):
        raise click.BadParameter("give a job's number, such as 412, or 412@3000 for its step 3000", ctx, param)
    return {"from_job": int(job), **({"from_step": int(step)} if at else {})}


def set_fields(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE; a value is read as in a job file, so `[a, b]` is a list."""
    return {name: job_value(name, text, source="--set") for name, text in _env(ctx, param, values).items()}


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--from-file", "file", metavar="JOB.YAML",
                 help="Read job fields from this file; options take precedence."),
    click.option("--queue", metavar="Q", envvar="MUSTER_QUEUE", shell_complete=queue_names,
                 help="Queue to submit to; `muster queues` lists them."),
    click.option("--gpus", metavar="N", type=COUNT_OR_NONE, help="GPUs in total, split evenly across the nodes."),
    click.option("--nodes", metavar="N", type=COUNT,
                 help="Number of nodes, on separate machines if possible, and always if each takes all GPUs of one."),
    click.option("--min-nodes", metavar="N", type=COUNT,
                 help="Make the job elastic: it keeps running with as few as N nodes."),
    click.option("--nproc", "nproc_per_node", metavar="M", type=COUNT, help="Processes per node."),
    click.option("--name", metavar="NAME", help="Name of the job."),
    click.option("--framework", metavar="NAME",
                 help="How the processes are launched and find each other (default: torchrun)."),
    click.option("--env", metavar="K=V", multiple=True, callback=_env,
                 help="Set an environment variable; may be repeated."),
    click.option("--env-file", metavar="FILE", multiple=True,
                 help="Read environment variables from a .env file."),
    click.option("--secret", "secrets", metavar="K", multiple=True, callback=names_only,
                 help="Environment variable whose value is never shown again; it is taken from $K, or prompted for."),
    click.option("--team-secret", "team_secrets", metavar="NAME", multiple=True,
                 help="Secret of the team (`muster secrets`); NAME:/PATH mounts its files there; may be repeated."),
    click.option("--volume", "volumes", metavar="NAME:/PATH", multiple=True, help="Volume to mount; may be repeated."),
    click.option("--image", metavar="IMAGE", help="Container image of the pods, in place of the queue's."),
    click.option("--cpu", metavar="N", help="Cores of each replica, such as 8 or 500m."),
    click.option("--memory", metavar="SIZE", help="Memory of each replica, such as 32Gi."),
    click.option("--shm", metavar="SIZE", help="Size of /dev/shm, such as 16Gi; it counts as memory."),
    click.option("--node-selector", metavar="K=V", multiple=True, callback=_env,
                 help="Label that nodes must have; may be repeated."),
    click.option("--toleration", "tolerations", metavar="K=V:EFFECT", multiple=True,
                 help="Taint of nodes to tolerate; may be repeated."),
    click.option("--working-dir", metavar="DIR", help="Where the command starts: a folder of the code, or absolute."),
    click.option("--retries", "max_retries", metavar="N", type=COUNT_OR_NONE,
                 help="Retry up to N times after failures."),
    click.option("--restart-policy", metavar="NAME",
                 help="The same as Kubernetes says it: Never, or OnFailure (3 retries, unless --retries says more)."),
    click.option("--notify", metavar="NAME", multiple=True,
                 help="Webhook of the team to notify of this job; may be repeated."),
    click.option("--from", "start", metavar="JOB[@STEP]", callback=_start,
                 help="Earlier job of the team whose checkpoints this one can read, at $MUSTER_FROM."),
    click.option("--priority", metavar="N", type=int, help="Jobs with higher numbers start first within the queue."),
    click.option("--deadline", "deadline_seconds", metavar="S", type=COUNT, help="Stop the job after S seconds."),
    click.option("--ttl", "ttl_seconds", metavar="TIME", callback=_seconds,
                 help="Remove the job so long after its end, such as 90s, 2h or 7d."),
    click.option("--grace", "grace_seconds", metavar="S", type=COUNT_OR_NONE,
                 help="Seconds that the processes get to exit before they are killed."),
    click.option("--start-timeout", "start_timeout_seconds", metavar="S", type=COUNT,
                 help="Requeue the job if it has not started after S seconds."),
    click.option("--set", "more", metavar="NAME=VALUE", multiple=True, callback=set_fields,
                 help="Set any job field that the server supports (`muster fields` lists them); may be repeated."),
)  # fmt: skip


def job_options(command: F) -> F:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def job_fields(file: str | None, *, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job from its file and the options. Raises UsageError where a required one is missing."""
    more = flags.pop("more")
    fields = merged(read_job(content(file), source=file) if file else {}, flags=more)
    start = flags.pop("start") or {}
    fields = merged(fields, flags={**flags, **start})  # an option of its own wins over --set
    env: dict[str, str] = {}
    for source in fields.pop("env_file", ()):
        env.update(read_env(content(source), source=source, here=os.environ))
    env.update(fields.get("env", {}))
    fields = {**fields, "env": env} if env else fields
    if not fields.get("queue"):
        raise click.UsageError("Missing option '--queue'")
    if not fields.get("command"):
        raise click.UsageError("Missing argument '-- COMMAND...'")
    return fields


def check_known(fields: dict[str, Any], *, client: Client) -> None:
    """Ask the server about fields that this client has no option for, before code is sent.

    Raises JobFileError for one that the server does not know either.
    """
    known = set(FIELDS)
    if known.issuperset(fields):
        return
    with contextlib.suppress(NotFound):  # an older server: it has the fields that this client knows
        known.update(field.name for field in client.job_fields())
    if unknown := sorted(set(fields) - known):
        raise JobFileError(f"{unknown[0]} is not a job field; the fields are {', '.join(sorted(known))}")


def content(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise JobFileError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobFileError(f"{path} is not UTF-8 text") from error
