"""muster submit: a folder and a command become a job."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import click

from muster.commands.following import LineWriter, detached, exit_code_of, follow
from muster.commands.session import echo_json, note, open_client, output_option
from muster.models import Job
from muster.progress import Upload


def _env(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter(f"{name!r} is not KEY=VALUE", ctx, param)
    return {name: value for name, _, value in pairs} or None


COUNT = click.IntRange(min=1)
COUNT_OR_NONE = click.IntRange(min=0)


# The first word that is no option begins the command, so a forgotten `--` does no harm.
@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--queue", required=True, metavar="Q", envvar="MUSTER_QUEUE", help="`muster queues` lists them.")
@click.option(
    "--nodes", metavar="N", type=COUNT, help="Replicas, each on a machine of its own where the queue has several."
)
@click.option("--nproc", "nproc_per_node", metavar="M", type=COUNT, help="Processes in each of them.")
@click.option("--gpus", metavar="N", type=COUNT_OR_NONE, help="GPUs in total, split evenly over the nodes.")
@click.option("--name", metavar="NAME", help="What to call the job.")
@click.option("--env", metavar="K=V", multiple=True, callback=_env, help="An environment variable; may be repeated.")
@click.option("--retries", "max_retries", metavar="N", type=COUNT_OR_NONE, help="Start again after a failure.")
@click.option("--priority", metavar="N", type=int, help="Higher goes first within the queue.")
@click.option("--deadline", "deadline_seconds", metavar="S", type=COUNT, help="Stop the job after S seconds.")
@click.option("--dir", "directory", metavar="FOLDER", default=".", show_default=True, help="The code to send.")
@click.option("--no-workspace", is_flag=True, help="Send no code.")
@click.option("--follow", "is_following", is_flag=True, help="Print the log, and exit as the job does.")
@output_option
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    *,
    command: tuple[str, ...],
    directory: str,
    no_workspace: bool,
    is_following: bool,
    output: str,
    **options: Any,
) -> None:
    """Submit COMMAND as a job, together with the code in a folder."""
    with open_client() as client:
        with contextlib.closing(Upload()) as progress:
            job = client.submit(
                command,
                directory=None if no_workspace else directory,
                idempotency_key=str(uuid.uuid4()),
                progress=progress,
                **options,
            )
        _announce(job, output=output, is_following=is_following)
        if not is_following:
            return
        try:
            job = follow(client, job=job, writer=LineWriter())
        except KeyboardInterrupt:
            detached(job)
    click.get_current_context().exit(exit_code_of(job))


def _announce(job: Job, *, output: str, is_following: bool) -> None:
    if output == "json":
        return echo_json(job.raw)
    said = f"Submitted job {job.id} ({job.name}) to {job.queue}"
    if is_following:
        return note(f"{said}  {job.url}".rstrip())
    click.echo(said)
    click.echo(f"  follow   muster logs -f {job.id}\n  look     muster status {job.id}")
    if job.url:
        click.echo(f"  page     {job.url}")
