"""muster cancel, suspend, resume, resubmit: acts on jobs."""

from __future__ import annotations

from typing import Callable

import click

from muster.client import Client
from muster.commands.session import echo_json, open_client, output_option
from muster.errors import ApiError
from muster.models import Job
from muster.render import terminal_of

Act = Callable[[Client, str], Job]


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
def cancel(*, jobs: tuple[str, ...]) -> None:
    """Stop jobs for good."""
    _act_on(jobs, verb="cancel", act=Client.cancel)


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
def suspend(*, jobs: tuple[str, ...]) -> None:
    """Stop jobs and free their place; `muster resume` brings them back."""
    _act_on(jobs, verb="suspend", act=Client.suspend)


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
def resume(*, jobs: tuple[str, ...]) -> None:
    """Put suspended jobs back into their queue."""
    _act_on(jobs, verb="resume", act=Client.resume)


@click.command()
@click.argument("job", metavar="JOB")
@output_option
def resubmit(*, job: str, output: str) -> None:
    """Submit a new job like JOB, with the same code."""
    with open_client() as client:
        made = client.resubmit(job)
    if output == "json":
        return echo_json(made.raw)
    click.echo(f"Submitted job {made.id} ({made.name}), a copy of {job}; `muster logs -f {made.id}` follows it")


def _act_on(jobs: tuple[str, ...], *, verb: str, act: Act) -> None:
    """Each job on its own: one that the server refuses does not keep the others from being acted on."""
    refused = 0
    with open_client() as client:
        for job in jobs:
            try:
                seen = act(client, job)
            except ApiError as error:
                click.echo(f"muster: {job}: {error}", err=True)
                refused += 1
            else:
                phase = terminal_of().phase(seen.phase)
                # The server has noted the wish; the phase follows within moments, and may still be the old one.
                click.echo(f"job {seen.id} ({seen.name}): {verb} requested, now {phase}", color=True)
    if refused:
        click.get_current_context().exit(1)
