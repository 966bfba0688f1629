"""Shared by the commands: a client for the chosen server, and the job arguments."""

from __future__ import annotations

import time
from typing import Any, Callable, TypeVar

import click

from muster.client import Client
from muster.commands.output import note
from muster.errors import MusterError
from muster.http.wire import Retry

F = TypeVar("F", bound=Callable[..., Any])

PHASES = (
    "queued",
    "admitted",
    "starting",
    "running",
    "stopping",
    "suspended",
    "succeeded",
    "failed",
    "cancelled",
)
COMPLETION_SECONDS = 2.0  # the user waits for it after pressing Tab
LONG_PAUSE_SECONDS = 3.0


def team_and_name(command: F) -> F:
    """Give a command the arguments TEAM and NAME, of something that the team has."""
    return click.argument("team")(click.argument("name")(command))


def open_client(**options: Any) -> Client:
    """Return a client for the server that `--server`, the environment or the saved login selects."""
    return Client(server=click.get_current_context().find_root().obj, on_retry=_tell, sleep=time.sleep, **options)


def job_argument(command: F) -> F:
    argument: Callable[[F], F] = click.argument("job", metavar="JOB", shell_complete=job_names)
    return argument(command)


def jobs_argument(command: F) -> F:
    argument: Callable[[F], F] = click.argument(
        "jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=job_names
    )
    return argument(command)


def job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, lambda client: [job.name for job in client.jobs(limit=100)], begin=incomplete)


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _offered(ctx, lambda client: [queue.name for queue in client.queues()], begin=incomplete)


def _offered(ctx: click.Context, names: Callable[[Client], list[str]], *, begin: str) -> list[str]:
    """Return names for a shell's completion, where an error cannot be shown."""
    server = ctx.find_root().params.get("server")
    try:
        with Client(server=server, timeout_seconds=COMPLETION_SECONDS, sleep=lambda seconds: None) as client:
            return sorted({name for name in names(client) if name.startswith(begin)})
    except MusterError:
        return []


def _tell(retry: Retry) -> None:
    """Report a retry once per outage, and only where silence would look like a hang."""
    if retry.pause_seconds >= LONG_PAUSE_SECONDS and not retry.is_patient:
        note(f"muster: {retry.reason}: retrying in {retry.pause_seconds:.0f} s")
    elif retry.is_patient and retry.tried == 2:
        note(f"muster: {retry.reason}: retrying for some minutes; jobs keep running")
