"""The options that describe a job, shared by `muster submit` and `muster plan`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, TypeVar

import click

from muster.client import Client
from muster.commands.job_file import FIELDS, NOT_GIVEN, job_value, merged, read_env, read_job
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


def _set(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE; a value is read as in a job file, so `[a, b]` is a list."""
    return {name: job_value(name, text, source="--set") for name, text in _env(ctx, param, values).items()}


OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--from-file", "file", metavar="JOB.YAML", help="Fields of the job in a file; options win over it."),
    click.option("--queue", metavar="Q", envvar="MUSTER_QUEUE", shell_complete=queue_names,
                 help="`muster queues` lists them."),
    click.option("--gpus", metavar="N", type=COUNT_OR_NONE, help="GPUs in total, split evenly over the nodes."),
    click.option("--nodes", metavar="N", type=COUNT,
                 help="Replicas, on different machines where possible; always, if each takes all GPUs of one."),
    click.option("--min-nodes", metavar="N", type=COUNT,
                 help="Makes the job elastic: it goes on with so few of its nodes."),
    click.option("--nproc", "nproc_per_node", metavar="M", type=COUNT, help="Processes in each of them."),
    click.option("--name", metavar="NAME", help="What to call the job."),
    click.option("--framework", metavar="NAME", help="How its processes find each other; torchrun when not given."),
    click.option("--env", metavar="K=V", multiple=True, callback=_env,
                 help="An environment variable; may be repeated."),
    click.option("--env-file", metavar="FILE", multiple=True, help="Environment variables, KEY=VALUE lines."),
    click.option("--secret", "secrets", metavar="K", multiple=True, callback=names_only,
                 help="A variable that nobody can read back; its value is taken from $K, or asked for."),
    click.option("--volume", "volumes", metavar="NAME:/PATH", multiple=True, help="Storage to mount; may be repeated."),
    click.option("--retries", "max_retries", metavar="N", type=COUNT_OR_NONE, help="Start again after a failure."),
    click.option("--priority", metavar="N", type=int, help="Higher goes first within the queue."),
    click.option("--deadline", "deadline_seconds", metavar="S", type=COUNT, help="Stop the job after S seconds."),
    click.option("--grace", "grace_seconds", metavar="S", type=COUNT_OR_NONE,
                 help="Between asking its processes to end and ending them."),
    click.option("--start-timeout", "start_timeout_seconds", metavar="S", type=COUNT,
                 help="Queue again when it has not started after S seconds."),
    click.option("--set", "more", metavar="NAME=VALUE", multiple=True, callback=_set,
                 help="Any field of a job that the server knows (`muster fields` lists them); may be repeated."),
)  # fmt: skip


def job_options(command: F) -> F:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def job_fields(file: str | None, *, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job from its file and the options. Raises UsageError where a required one is missing."""
    flags = {**flags.pop("more"), **{name: value for name, value in flags.items() if value not in NOT_GIVEN}}
    fields = merged(read_job(_content(file), source=file) if file else {}, flags=flags)
    env: dict[str, str] = {}
    for source in fields.pop("env_file", ()):
        env.update(read_env(_content(source), source=source))
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
    unknown = sorted(set(fields) - set(FIELDS))
    if not unknown:
        return
    try:
        known = {*FIELDS, *(field.name for field in client.job_fields())}
    except NotFound:  # a server of before: it has the fields that this client knows
        known = set(FIELDS)
    wrong = [name for name in unknown if name not in known]
    if wrong:
        raise JobFileError(f"{wrong[0]} is not a field of a job; known are {', '.join(sorted(known))}")


def _content(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise JobFileError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobFileError(f"{path} is not text in UTF-8") from error
